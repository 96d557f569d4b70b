"""Preview tokens: what a person previewed, signed, so that exactly this and nothing else is then carried out."""

import base64
import hmac
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

from worker.core.errors import Rejected
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.operations.bulk.execution import BulkSpec
from worker.operations.runs.run_filter import RunFilter
from worker.runtime.json_bytes import from_json, to_json
from worker.store.repos.bulk_operations import BulkAction

VALID_FOR: Final = timedelta(minutes=10)
LENGTH_MAX: Final = 16_384
_PURPOSE: Final = b"bulk preview"  # the key signs other things too
_SIGNATURE_BYTES: Final = 24


class BadPreviewToken(Rejected):
    """BadPreviewToken: a token that this installation did not sign, that has expired, or is another person's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewClaim:
    """Holds what was previewed. `bulk_id` is of the operation that the token starts, so that it starts only one."""

    bulk_id: str
    wanted: BulkSpec
    runs: RunFilter
    digest: str
    by: str
    expires_at: datetime


def write_token(claim: PreviewClaim, key: bytes) -> str:
    body = to_json(
        {
            "id": claim.bulk_id,
            "wanted": asdict(claim.wanted),
            "runs": asdict(claim.runs),
            "digest": claim.digest,
            "by": claim.by,
            "expiresAt": format_rfc3339(claim.expires_at),
        }
    )
    return f"{_text(body)}.{_text(_signature(body, key))}"


def read_token(text: str, key: bytes, *, by: str, now: datetime) -> PreviewClaim:
    """Return what was previewed. Raises `BadPreviewToken`."""
    body_text, _, signature = text.partition(".")
    try:
        body = _bytes(body_text)
        is_ours = len(text) <= LENGTH_MAX and hmac.compare_digest(_bytes(signature), _signature(body, key))
    except ValueError:
        is_ours, body = False, b""
    if not is_ours:
        raise BadPreviewToken("the token is not one of a preview of this installation; preview again")
    claim = _claim(cast("dict[str, Any]", from_json(body)))
    if claim.by != by:
        raise BadPreviewToken("the token is of another person's preview; preview again")
    if claim.expires_at <= now:
        raise BadPreviewToken(f"the token expired at {format_rfc3339(claim.expires_at)}; preview again")
    return claim


def _claim(content: dict[str, Any]) -> PreviewClaim:
    wanted: dict[str, Any]
    runs: dict[str, Any]
    wanted, runs = content["wanted"], content["runs"]
    expires_at = parse_rfc3339(content["expiresAt"])
    assert expires_at is not None  # noqa: S101  the signature proves that this module wrote it
    runs = {**runs, "statuses": tuple(runs["statuses"]), "outcomes": tuple(runs["outcomes"])}
    return PreviewClaim(
        bulk_id=content["id"],
        wanted=BulkSpec(
            action=BulkAction(wanted["action"]),
            reason=wanted["reason"],
            supersede=wanted["supersede"],
            waive_sla=wanted["waive_sla"],
        ),
        runs=RunFilter(**runs),
        digest=content["digest"],
        by=content["by"],
        expires_at=expires_at,
    )


def _signature(body: bytes, key: bytes) -> bytes:
    return hmac.digest(hmac.digest(key, _PURPOSE, "sha256"), body, "sha256")[:_SIGNATURE_BYTES]


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
