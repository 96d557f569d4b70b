"""What targets say, made fit for rows, logs and alerts: short, printable, and without secrets."""

import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

MESSAGE_BYTES_MAX = 512

# A longer text is cut before anything else looks at it; no message needs more to choose its 512 bytes from.
_INPUT_CHARS_MAX = 65_536
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_HIDDEN = "***"
# Shorter values occur in ordinary words, and hiding them would hide the message.
_SECRET_CHARS_MIN = 4
# A longer one is a key or a token, which no address holds, or which is written in one as it is.
_WRITTEN_CHARS_MAX = 512
_ENCODED = re.compile(r"[%+\\]")


def tidy(text: str, secrets: Iterable[str] = ()) -> str:
    """Cut a text to 512 bytes, without control characters (newline and tab stay) and without the given secrets."""
    shown = text[:_INPUT_CHARS_MAX]
    told = (secret for secret in secrets if len(secret) >= _SECRET_CHARS_MIN)
    # Longest first, so that a secret that contains another one leaves no rest behind.
    for secret in sorted(told, key=len, reverse=True):
        shown = _without(secret, shown)
    return _CONTROL.sub("", shown).strip().encode()[:MESSAGE_BYTES_MAX].decode(errors="ignore")


def _without(secret: str, shown: str) -> str:
    """Hide a secret as it is, as it stands inside a JSON text, and as it does in an address or a form."""
    shown = shown.replace(secret, _HIDDEN).replace(json.dumps(secret)[1:-1], _HIDDEN)
    if len(secret) > _WRITTEN_CHARS_MAX or not _ENCODED.search(shown):
        return shown
    # Programs differ in which characters they write otherwise, so each may be written in any way.
    return re.sub("".join(map(_any_spelling, secret)), lambda _: _HIDDEN, shown, flags=re.IGNORECASE)


def _any_spelling(character: str) -> str:
    if character.isalnum() and character.isascii():
        return f"(?-i:{character})"
    written = {quote(character, safe="", errors="replace"), quote_plus(character, errors="replace")}
    ways = {character, *written, json.dumps(character)[1:-1], f"\\{character}"}
    # The longest way first, and never another one after it: so no secret can make the search slow.
    return f"(?>{'|'.join(map(re.escape, sorted(ways, key=len, reverse=True)))})"
