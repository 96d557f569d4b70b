"""A credential endpoint on loopback, as ECS has one for its tasks, and a DynamoDB that answers every request.

Both run in threads: the tests that need them have several event loops.
"""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.aws.emulators import AWS_ENVIRONMENT

# In the last ten minutes of their lifetime the library insists on new credentials.
IN_MANDATORY_WINDOW = timedelta(minutes=5)
FRESH = timedelta(hours=6)
STATIC = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@dataclass(slots=True)
class CredentialEndpoint:
    """What it answers is for the test to say, at any time. `asked` counts its requests."""

    lifetime: timedelta = IN_MANDATORY_WINDOW
    status: int = 200
    asked: int = 0
    given: int = 0
    held: threading.Event | None = None  # answers only once this is set
    url: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self) -> tuple[int, bytes]:
        with self._lock:
            self.asked += 1
        if self.held is not None:
            self.held.wait(10)
        if self.status != 200:
            return self.status, b'{"message": "out of order"}'
        with self._lock:
            self.given += 1
        expires = datetime.now(UTC) + self.lifetime
        return 200, json.dumps(
            {
                "AccessKeyId": f"AKID{self.given}",
                "SecretAccessKey": "not-a-secret",
                "Token": "not-a-token",
                "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        ).encode()


@contextmanager
def a_credential_endpoint(monkeypatch: pytest.MonkeyPatch) -> Generator[CredentialEndpoint]:
    """Have the process find its credentials there, and nowhere else."""
    endpoint = CredentialEndpoint()
    for name, value in AWS_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name in STATIC:
        monkeypatch.delenv(name, raising=False)
    with _serving(endpoint.answer) as url:
        endpoint.url = url
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/credentials")
        yield endpoint


@contextmanager
def a_dynamodb() -> Generator[str]:
    """It finds no row and takes every write."""
    with _serving(lambda: (200, b"{}")) as url:
        yield url


@contextmanager
def _serving(answer: Callable[[], tuple[int, bytes]]) -> Generator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = answer()
            with suppress(ConnectionError):  # who asked waits no more
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("x-amzn-RequestId", "1")
                self.end_headers()
                self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the library's name

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128  # the usual 5 resets connections when many clients connect at once

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
