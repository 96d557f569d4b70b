"""The API and the model of the example: small servers that throttle, fail and hang on purpose."""

import hashlib
import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = 100
TOPICS = ("health", "transport", "water", "energy", "schools")
HANG_S = 3.0  # longer than the client waits


def topic_of(text: str) -> str:
    """What the model answers; a single pass over all bills asks it directly."""
    return TOPICS[int(hashlib.sha256(text.encode()).hexdigest(), 16) % len(TOPICS)]


def bill(number: int, edition: int = 1) -> dict[str, str]:
    text = f"Bill {number}, edition {edition}. " + "Be it enacted that this be so. " * (5 + number % 20)
    content_hash = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {"id": f"hr-{number:04d}", "hash": content_hash, "title": f"Bill {number}", "text": text}


class World:
    """The bills that the API knows, and how often each service was asked and refused."""

    def __init__(self) -> None:
        self.bills: dict[str, dict[str, str]] = {}
        self.calls = {"api": 0, "model": 0}
        self.refused = 0

    def put(self, *bills: dict[str, str]) -> None:
        self.bills.update({each["id"]: each for each in bills})

    def page(self, number: int) -> list[dict[str, str]]:
        return [self.bills[key] for key in sorted(self.bills)][number * PAGE : (number + 1) * PAGE]


def _handler(world: World) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            world.calls["api"] += 1
            if world.calls["api"] % 5 == 3:
                self._refuse(503)
                return
            self._answer(world.page(int(self.path.rpartition("=")[2])))

        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            world.calls["model"] += 1
            if world.calls["model"] % 4 == 2:
                self._refuse(429)
                return
            if world.calls["model"] == 7:
                time.sleep(HANG_S)
            self._answer([topic_of(text) for text in texts])

        def _refuse(self, status: int) -> None:
            world.refused += 1
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _answer(self, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except BrokenPipeError:
                return  # the client stopped waiting

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def served(world: World) -> Generator[str]:
    """Serve the API and the model until the end of the block; return their URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(world))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
