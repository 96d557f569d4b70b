"""Remember the ids of recent events, because every event is delivered at least once."""

from collections import OrderedDict
from typing import Final

REMEMBERED_MAX: Final = 10_000


class RecentIds:
    """Keeps the latest `remembered_max` ids, in memory only. Where it matters, the store knows them too."""

    def __init__(self, remembered_max: int = REMEMBERED_MAX) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._remembered_max = remembered_max

    def __contains__(self, told_id: str) -> bool:
        return told_id in self._ids

    def add(self, told_id: str) -> None:
        self._ids[told_id] = None
        if len(self._ids) > self._remembered_max:
            self._ids.popitem(last=False)
