"""Request the heartbeat address, through the HTTP client that refuses addresses of our own network."""

from datetime import timedelta
from typing import Final

from scheduler.watchdog.dead_mans_switch import Ping
from worker.net.http_client import HttpAnswer, HttpClient, NotSent, Request, Unanswered

PATIENCE: Final = timedelta(seconds=10)


def pinging(client: HttpClient, url: str) -> Ping:
    """Return a ping that requests `url` by GET. Its path may be a secret, so no message repeats it."""

    async def ping() -> str | None:
        match await client.send(Request(method="GET", url=url, timeout=PATIENCE)):
            case HttpAnswer(status=status) as answer:
                return None if answer.is_success else f"the heartbeat's address answered {status}"
            case NotSent(category=category):
                return f"the heartbeat's address could not be asked for: {category}"
            case Unanswered():
                return "the heartbeat's address gave no answer"

    return ping
