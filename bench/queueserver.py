"""A fast local queue server for benchmarks: SQS's JSON protocol, as much as clients need.

It keeps messages in memory, hands each out once, and computes as little as it can, so that what is measured is the
client. It is no emulator: visibility never runs out, and long polls are answered after a moment.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, TypeAlias

from bench.localserver import Answer, Answering, Request, local_server

EMPTY_POLL_S: Final = 0.05
ACCOUNT: Final = "000000000000"
ATTRIBUTES: Final = {"VisibilityTimeout": "60", "ApproximateNumberOfMessages": "0"}

Parameters: TypeAlias = Mapping[str, Any]


class _Queues:
    """What all connections share."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._ready: dict[str, deque[dict[str, Any]]] = {}
        self._sent = 0
        self.operations: Mapping[bytes, Callable[[Parameters], Mapping[str, Any]]] = {
            b"sendmessage": self._send,
            b"sendmessagebatch": self._send_batch,
            b"receivemessage": self._receive,
            b"deletemessage": lambda _: {},
            b"deletemessagebatch": _all_entries,
            b"changemessagevisibility": lambda _: {},
            b"changemessagevisibilitybatch": _all_entries,
            b"getqueueurl": lambda request: {"QueueUrl": self._url(request["QueueName"])},
            b"createqueue": lambda request: {"QueueUrl": self._url(request["QueueName"])},
            b"listqueues": lambda _: {"QueueUrls": []},
            b"getqueueattributes": lambda _: {"Attributes": dict(ATTRIBUTES)},
        }

    def _url(self, name: str) -> str:
        return f"{self._address}/{ACCOUNT}/{name}"

    def _put(self, url: str, body: str) -> dict[str, str]:
        self._sent += 1
        digest = hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()
        message: dict[str, Any] = {
            "MessageId": f"m{self._sent}",
            "ReceiptHandle": f"h{self._sent}",
            "Body": body,
            "MD5OfBody": digest,
            "Attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1770000000000"},
        }
        self._ready.setdefault(url.rpartition("/")[2], deque()).append(message)
        return {"MessageId": message["MessageId"], "MD5OfMessageBody": digest}

    def _send(self, request: Parameters) -> Mapping[str, Any]:
        return self._put(request["QueueUrl"], request["MessageBody"])

    def _send_batch(self, request: Parameters) -> Mapping[str, Any]:
        sent = [
            {"Id": entry["Id"], **self._put(request["QueueUrl"], entry["MessageBody"])} for entry in request["Entries"]
        ]
        return {"Successful": sent, "Failed": []}

    def _receive(self, request: Parameters) -> Mapping[str, Any]:
        ready = self._ready.get(request["QueueUrl"].rpartition("/")[2])
        if not ready:
            return {}
        most = min(int(request.get("MaxNumberOfMessages", 1)), len(ready))
        return {"Messages": [ready.popleft() for _ in range(most)]}


def _all_entries(request: Parameters) -> Mapping[str, Any]:
    return {"Successful": [{"Id": entry["Id"]} for entry in request["Entries"]], "Failed": []}


def _answering(url: str) -> Answering:
    queues = _Queues(url)

    def answer(request: Request) -> Answer:
        said = queues.operations[request.name](json.loads(request.body))
        is_empty_poll = request.name == b"receivemessage" and not said
        return Answer(json.dumps(said).encode(), EMPTY_POLL_S if is_empty_poll else 0.0)

    return answer


def queue_server() -> AbstractContextManager[str]:
    """Give the URL of a server with empty queues, until the block ends."""
    return local_server(_answering)
