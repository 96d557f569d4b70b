"""Finds the word that was probably meant by a mistyped one."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

_WORD_MAX: Final = 64
_OPTIONS_MAX: Final = 1000


def closest(word: object, options: Iterable[str]) -> str | None:
    """Return the option that was most likely meant; None if none is close."""
    if not isinstance(word, str) or len(word) > _WORD_MAX:
        return None
    by_lower = {option.lower(): option for option in islice(options, _OPTIONS_MAX)}
    close = get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def suggest(word: object, options: Iterable[str]) -> str:
    """Return `did you mean …?`, or an empty text if no option is close."""
    meant = closest(word, options)
    return f"did you mean `{meant}`?" if meant else ""
