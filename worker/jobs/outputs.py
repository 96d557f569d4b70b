"""What a job returned, made fit to be stored: bounded, without secrets, as JSON if it is JSON."""

from collections.abc import Iterable, Mapping
from typing import Final, cast

from worker.core.model.values import Json
from worker.jobs.messages import hide_secrets
from worker.runtime.json_bytes import from_json

OUTPUT_BYTES_MAX: Final = 8 * 1024  # as much as is searched for encoded secrets
DEPTH_MAX: Final = 32


def outputs_of(body: bytes, secrets: Iterable[str] = ()) -> Mapping[str, Json] | None:
    """Return what a job answered: `result` if it is JSON, else `text`; None if it answered nothing.

    A longer answer is cut: `text` is its beginning, and `size` its length in bytes. Secrets are replaced.
    """
    if not body.strip():
        return None
    if len(body) > OUTPUT_BYTES_MAX:
        text = body[:OUTPUT_BYTES_MAX].decode(errors="ignore")
        # A secret may be cut off at the end, so the end is not shown.
        return {"text": hide_secrets(text, secrets)[: OUTPUT_BYTES_MAX // 2], "isCut": True, "size": len(body)}
    text = hide_secrets(body.decode(errors="replace"), secrets)
    try:
        result = cast("Json", from_json(text))
    except ValueError:
        return {"text": text}
    return {"result": result} if _is_within(result, DEPTH_MAX) else {"text": text}


def _is_within(value: Json, depth: int) -> bool:
    """Return whether a value is nested no deeper than this: everything that reads it later recurses."""
    if isinstance(value, Mapping):
        return depth > 0 and all(_is_within(member, depth - 1) for member in value.values())
    if isinstance(value, list | tuple):
        return depth > 0 and all(_is_within(member, depth - 1) for member in value)
    return True
