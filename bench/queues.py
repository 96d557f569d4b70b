"""Consuming a queue beside celery and taskiq, all on the same local server, each in a process of its own.

The figure to trust is messages per second of processor time, which a busy machine changes little: the server is another
process. A message is received, decoded, handed to a handler that does nothing, and deleted. The peers are installed
into an environment of their own the first time. Run it with `python -m bench queues`.
"""

import sys
from collections.abc import Mapping
from typing import Final

from bench.children import answer, python_with
from bench.queueserver import queue_server

MESSAGES: Final = 5_000
PEERS_MESSAGES: Final = 1_000  # they take longer, and their figure is the same
ROUNDS: Final = 2
TARGET: Final = 1_500
PACKAGES: Final = ("celery[sqs]==5.7.0", "taskiq-aio-sqs==2.1.1")
# Of no account; and nothing may wait for a metadata service.
ENVIRONMENT: Final = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def measure(python: str, module: str, url: str, messages: int) -> Mapping[str, float]:
    """The best round of one contestant."""
    rounds = [answer(python, "-m", module, url, str(messages), **ENVIRONMENT) for _ in range(ROUNDS)]
    return max(rounds, key=lambda found: found["per_core"])


def main() -> None:
    python = python_with("peers-queues", *PACKAGES)
    with queue_server() as url:
        figures = {"interlock": measure(sys.executable, "bench.queues_worker", url, MESSAGES)}
        if python is not None:
            figures["taskiq-aio-sqs"] = measure(python, "bench.queues_taskiq", url, PEERS_MESSAGES)
            figures["celery[sqs]"] = measure(python, "bench.queues_celery", url, PEERS_MESSAGES)
    print(f"{'':18}{'messages/s per core':>22}{'messages/s':>14}   (target: at least {TARGET} per core)")
    for name, found in figures.items():
        print(f"{name:18}{found['per_core']:>22,.0f}{found['per_second']:>14,.0f}")
    if python is None:
        print("the peers could not be installed here")
        return
    best = max(found["per_core"] for name, found in figures.items() if name != "interlock")
    print(f"{figures['interlock']['per_core'] / best:.1f} times the best peer (target: at least 1)")


if __name__ == "__main__":
    main()
