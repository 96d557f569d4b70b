"""The colours of the console: the system's, or those that the viewer chose. A cookie holds the choice."""

from collections.abc import Mapping
from typing import Final

THEMES: Final = ("auto", "light", "dark")
COOKIE: Final = "interlock-theme"


def theme_of(cookies: Mapping[str, str]) -> str:
    """Return the chosen theme; anything but a known name counts as none."""
    chosen = cookies.get(COOKIE, "")
    return chosen if chosen in THEMES else THEMES[0]
