"""Shows text from outside on a terminal, where a control character could move the cursor."""

import codecs
from typing import Final

CUT_NOTE_MAX: Final = 30  # characters that the note about a cut takes at most
# The error handler of streams whose encoding lacks characters, as that of the locale C does.
ESCAPED: Final = "interlock.escaped"


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Return what cannot be encoded as JSON writes it: unlike `\\xe9`, `\\u00e9` is valid in a line of JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end


codecs.register_error(ESCAPED, _escape)


def visible(text: str) -> str:
    """Replace control characters by visible escapes, because file names and values come from outside."""
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)


def one_line(text: str, chars_max: int) -> str:
    """Return a text as one harmless line of at most `chars_max` characters; a cut text says so."""
    # Escapes only make a text longer, so the rest of a huge text need not be looked at.
    shown = visible(" ".join(text[: chars_max * 4].split()))
    if len(shown) <= chars_max and len(text) <= chars_max * 4:
        return shown
    return f"{shown[: chars_max - CUT_NOTE_MAX]}… (cut, {len(text):,} characters)"
