"""Probe for a container's health check: `python -m worker.web.probe`.

It uses only the standard library, so that it starts quickly. Exit code 0: healthy. Exit code 1: unhealthy, or no answer
in time.
"""

import http.client
import os
import sys
from contextlib import closing
from typing import Final, TextIO

VARIABLE: Final = "INTERLOCK_HEALTH"
PATIENCE_S: Final = 3.0
ANSWER_MAX: Final = 10_000


def probe(address: str, path: str = "/healthz", *, say: TextIO) -> int:
    """Request `path`, print the answer in one line, and return the exit code."""
    host, _, port = address.rpartition(":")
    # A worker that listens on all interfaces is probed on this machine.
    asked = "127.0.0.1" if host in {"", "0.0.0.0", "[::]", "::"} else host  # noqa: S104
    try:
        with closing(http.client.HTTPConnection(asked, int(port), timeout=PATIENCE_S)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read(ANSWER_MAX).decode(errors="replace")
    except (OSError, ValueError, http.client.HTTPException) as error:
        say.write(f"no answer from {address}{path}: {error}\n")
        return 1
    say.write(f"{text}\n")
    return 0 if answer.status == 200 else 1


if __name__ == "__main__":
    sys.exit(probe(os.environ.get(VARIABLE, ""), *sys.argv[1:2], say=sys.stdout))
