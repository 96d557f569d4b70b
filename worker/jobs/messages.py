"""Makes targets' messages fit for rows, logs and alerts: short, printable and without secrets."""

import re
from collections.abc import Iterable

from worker.jobs.redaction import TooEntangled, find_secrets, without

MESSAGE_BYTES_MAX = 512

# A longer text is cut first. No message needs more to choose its 512 bytes from.
_INPUT_CHARS_MAX = 65_536
# This much is searched for encoded secrets. Of a longer text the second half is not shown: a secret may be cut off
# there.
_SEARCHED_CHARS_MAX = 8_192
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_HIDDEN = "***"
_WITHHELD = "(withheld: it holds too many encodings within encodings to be searched for secrets)"
# Shorter values occur in ordinary words; hiding them would hide the message.
_SECRET_CHARS_MIN = 4


def tidy(text: str, secrets: Iterable[str] = ()) -> str:
    """Cut a text to 512 bytes and remove the given secrets and control characters.

    Newlines and tabs stay.
    """
    shown = hide_secrets(text[:_INPUT_CHARS_MAX], secrets)
    return shown.strip().encode(errors="replace")[:MESSAGE_BYTES_MAX].decode(errors="ignore")


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return the text without the given secrets, in any encoding, and without control characters.

    Of a text longer than 8,192 characters that may hold secrets, only the first half of those is returned.
    """
    told = sorted({secret for secret in secrets if len(secret) >= _SECRET_CHARS_MIN}, key=len, reverse=True)
    return _CONTROL.sub("", _without(told, text) if told else text)


def _without(secrets: list[str], shown: str) -> str:
    # Replace plain occurrences first, at any length, the longest secret first, so that a secret that contains another
    # leaves no rest.
    for secret in secrets:
        shown = shown.replace(secret, _HIDDEN)
    searched = shown[:_SEARCHED_CHARS_MAX]
    seen = len(shown) if len(shown) <= _SEARCHED_CHARS_MAX else _SEARCHED_CHARS_MAX // 2
    try:
        spans = find_secrets(searched, secrets)
    except TooEntangled:
        return _WITHHELD
    return without(searched[:seen], [(begin, min(end, seen)) for begin, end in spans if begin < seen], _HIDDEN)
