"""Shows text from outside on a terminal, where a control character could move the cursor."""

from typing import Final

CUT_NOTE_MAX: Final = 30  # characters that the note about a cut takes at most


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
