"""What targets say, made fit for rows, logs and alerts: short, printable, and without secrets."""

import json
import re
from collections.abc import Iterable

MESSAGE_BYTES_MAX = 512

# A longer text is cut before anything else looks at it; no message needs more to choose its 512 bytes from.
_INPUT_CHARS_MAX = 65_536
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_HIDDEN = "***"
# Shorter values occur in ordinary words, and hiding them would hide the message.
_SECRET_CHARS_MIN = 4


def tidy(text: str, secrets: Iterable[str] = ()) -> str:
    """Cut a text to 512 bytes, without control characters (newline and tab stay) and without the given secrets."""
    shown = text[:_INPUT_CHARS_MAX]
    # Longest first, so that a secret that contains another one leaves no rest behind.
    for secret in sorted(_spellings(secrets), key=len, reverse=True):
        shown = shown.replace(secret, _HIDDEN)
    return _CONTROL.sub("", shown).strip().encode()[:MESSAGE_BYTES_MAX].decode(errors="ignore")


def _spellings(secrets: Iterable[str]) -> set[str]:
    """Each secret as it is, and as it stands inside a JSON text."""
    told = [secret for secret in secrets if len(secret) >= _SECRET_CHARS_MIN]
    return {*told, *(json.dumps(secret)[1:-1] for secret in told)}
