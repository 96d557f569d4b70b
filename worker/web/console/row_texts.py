"""Rows of lists as text, kept for all viewers for as long as nothing has changed."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from markupsafe import Markup

ROWS_MAX: Final = 2_000  # 20 different pages of 100; each row has about 1 kB


class RowTexts:
    """Keeps rendered rows by name.

    `key` holds all that a row depends on: its version, and the time as the row shows it.
    """

    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._known: OrderedDict[str, tuple[Hashable, Markup]] = OrderedDict()
        self.made = 0  # how many were rendered, not taken from those kept

    def of(self, name: str, key: Hashable, make: Callable[[], Markup]) -> Markup:
        known = self._known.get(name)
        if known is not None and known[0] == key:
            self._known.move_to_end(name)
            return known[1]
        text = make()
        self.made += 1
        self._known[name] = key, text
        self._known.move_to_end(name)
        if len(self._known) > self._rows_max:
            self._known.popitem(last=False)
        return text
