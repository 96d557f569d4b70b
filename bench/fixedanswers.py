"""A server that answers requests with bytes made in advance."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial

from bench.localserver import Answer, Answering, Request, local_server


def _answering(answers: Mapping[str, bytes], _url: str) -> Answering:
    made = {operation.lower().encode(): Answer(body) for operation, body in answers.items()}

    def answer(request: Request) -> Answer:
        return made[request.name]

    return answer


def fixed_answers(answers: Mapping[str, bytes]) -> AbstractContextManager[str]:
    """Give the URL of a server that answers each operation, or path, with its body, until the block ends."""
    return local_server(partial(_answering, answers))
