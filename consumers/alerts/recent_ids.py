"""Repeats: the last things told, by id, because everything is delivered at least once."""

from collections import OrderedDict
from typing import Final

REMEMBERED_MAX: Final = 10_000


class RecentIds:
    """Remembers as many ids as it may, the latest ones. In memory only: where it matters, the store knows as well."""

    def __init__(self, remembered_max: int = REMEMBERED_MAX) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._remembered_max = remembered_max

    def __contains__(self, told_id: str) -> bool:
        return told_id in self._ids

    def add(self, told_id: str) -> None:
        self._ids[told_id] = None
        if len(self._ids) > self._remembered_max:
            self._ids.popitem(last=False)
