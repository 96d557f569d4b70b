"""Post JSON to an alert target through the guarded HTTP client, and classify what comes back.

No error repeats an address: the addresses of webhooks and workflows are secrets.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from yarl import URL

from consumers.alerts.targets.target import AlertTargetBusy, AlertTargetDown, AlertTargetRefused
from worker.core.errors import Rejected, RetryLater
from worker.net.http_client import HttpAnswer, HttpClient, NotSent, Request, Unanswered

CALL_S: Final = 10.0  # far less than the lifetime of a lane's claim
RETRY_AFTER_S: Final = 30.0  # if the target does not say
RETRY_AFTER_MAX_S: Final = 600.0
ANSWER_BYTES_MAX: Final = 4_096
SAID_MAX: Final = 200

# A person has to fix the address, the key or the right. Nothing can be sent until then, and no alert is lost.
_LOCKED_OUT: Final = frozenset({401, 403, 404, 410})
_PASSING: Final = frozenset({408, 425})

# Reads a secret from its source; a managed secret is read again on each call. Raises `Rejected` and `RetryLater`.
ReadSecret: TypeAlias = Callable[[], Awaitable[str]]


class KeptSecret:
    """Reads a secret on first use, and again after the target rejected it."""

    def __init__(self, read: ReadSecret, setting: str) -> None:
        self._read, self.setting = read, setting
        self._value = ""

    async def get(self) -> str:
        """Return the secret. Raises `AlertTargetDown`."""
        if not self._value:
            try:
                self._value = await self._read()
            except (Rejected, RetryLater) as error:
                raise AlertTargetDown(f"{self.setting} cannot be read: {error}") from error
            if not self._value:
                raise AlertTargetDown(f"{self.setting} is empty; store a value there")
        return self._value

    def forget(self) -> None:
        self._value = ""

    def hidden_in(self, text: str) -> str:
        """Return a text without the secret."""
        return text.replace(self._value, "***") if self._value else text


@dataclass(frozen=True, slots=True)
class TargetPost:
    """TargetPost sends the requests of one target. `name` and the secrets' settings appear in errors."""

    http: HttpClient
    name: str
    secrets: tuple[KeptSecret, ...]

    async def post(self, url: str, body: bytes, headers: Mapping[str, str] | None = None) -> HttpAnswer:
        """Post a body once and return a success. Raises `AlertTargetTrouble` and `AlertTargetRefused`."""
        request = Request(
            method="POST",
            url=url,
            headers={"Content-Type": "application/json", **(headers or {})},
            body=body,
            timeout=timedelta(seconds=CALL_S),
            once=True,
            answer_bytes_max=ANSWER_BYTES_MAX,
            has_secret_body=True,  # no redirect may take alerts, keys or signatures to another origin
        )
        match await self.http.send(request):
            case HttpAnswer() as answer:
                return self._checked(url, answer)
            case NotSent(category=category, is_final=is_final):
                self._forget()
                why = "its address is not public; name it in INTERLOCK_HTTP_ALLOW to allow it" if is_final else category
                raise AlertTargetDown(f"{self.name}: nothing could be sent to {host_of(url)}: {why}")
            case Unanswered():
                raise AlertTargetDown(f"{self.name}: {host_of(url)} gave no answer in {CALL_S:.0f} seconds")

    def _checked(self, url: str, answer: HttpAnswer) -> HttpAnswer:
        if answer.is_success:
            return answer
        status = answer.status
        said = f"{self.name}: {host_of(url)} answered {status}"
        if status == 429:
            raise AlertTargetBusy(f"{said}; it asks to wait", retry_after_s(answer.headers))
        if status in _LOCKED_OUT:
            self._forget()
            names = " and ".join(each.setting for each in self.secrets)
            raise AlertTargetDown(f"{said}; check {names}; alerts wait until it accepts them")
        if status in _PASSING or status >= 500:
            raise AlertTargetDown(f"{said}; it is tried again")
        raise AlertTargetRefused(f"{said}: {self._quoted(answer)}")

    def _quoted(self, answer: HttpAnswer) -> str:
        """Return the start of an answer without our secrets, which it may repeat."""
        text = " ".join(answer.text.split())
        for each in self.secrets:
            text = each.hidden_in(text)
        return text[:SAID_MAX] or "it says nothing more"

    def _forget(self) -> None:
        for each in self.secrets:
            each.forget()


def host_of(url: str) -> str:
    """Return the host of an address, the only part that may be shown."""
    try:
        return URL(url).host or "no host"
    except ValueError:
        return "something that is no address"


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Return for how long a target asks to wait, within bounds."""
    said = headers.get("Retry-After", "")
    return min(float(said), RETRY_AFTER_MAX_S) if said.isdecimal() and len(said) < 10 else RETRY_AFTER_S
