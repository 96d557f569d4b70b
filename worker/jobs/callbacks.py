"""Callback addresses: each attempt's job gets one, signed, with which it can report its own end.

The address names the run, the attempt and its token, and carries a signature over them. Who has the address can report
the end of this attempt and nothing else. The key of the signatures is one of the store's rows, shared by all workers.
"""

import base64
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.run.state import Run
from worker.core.time.periods import Period

# Returns the address for the current attempt of a run; "" if jobs get none.
CallbackUrl: TypeAlias = Callable[[Run], str]

PATH: Final = "/api/v1/jobs/"
END: Final = "/ended"
SEALED_MAX: Final = 1_024
_SIGNATURE_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class CallbackClaim:
    """CallbackClaim names the attempt that a callback is about."""

    key: RunKey
    token: str


def no_callback(_: Run) -> str:
    return ""


def callback_urls(base: str, key: bytes) -> CallbackUrl:
    """Return what makes the addresses below the public address `base`."""

    def url(run: Run) -> str:
        return f"{base.rstrip('/')}{PATH}{seal(CallbackClaim(run.key, run.token), key)}{END}"

    return url


def seal(claim: CallbackClaim, key: bytes) -> str:
    """Return a claim as text for a URL; equal claims give equal text, so that a start can be repeated."""
    named = [claim.key.pipeline, claim.key.schedule, str(claim.key.period), claim.token]
    body = json.dumps(named, separators=(",", ":")).encode()
    return f"{_text(body)}.{_text(_signature(body, key))}"


def unseal(sealed: str, key: bytes) -> CallbackClaim | None:
    """Return the claim, or None if the signature is not ours."""
    body_text, _, signature_text = sealed.partition(".")
    try:
        body, signature = _bytes(body_text), _bytes(signature_text)
    except ValueError:
        return None
    if len(sealed) > SEALED_MAX or not hmac.compare_digest(signature, _signature(body, key)):
        return None
    pipeline, schedule, period_text, token = cast("list[str]", json.loads(body))
    period = Period.parse(period_text)
    return None if period is None else CallbackClaim(RunKey(PipelineId(pipeline), ScheduleId(schedule), period), token)


def _signature(body: bytes, key: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:_SIGNATURE_BYTES]


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
