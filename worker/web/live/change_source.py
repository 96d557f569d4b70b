"""News of an embedded store: its change feed, read a few times a second while somebody looks."""

from collections.abc import AsyncGenerator
from typing import Final

from worker.config.store_setting import GROUP
from worker.core.model import keys
from worker.runtime.clock import Clock
from worker.store.table import Change, ChangeFeed, TableName, Tables, Trimmed
from worker.web.live.mirror import Mirror
from worker.web.live.rows import LETTERS, apply_config, apply_control, apply_event
from worker.web.live.slices import Slices
from worker.web.live.source import MirrorReader, NewsLost

INTERVAL_S: Final = 0.25
CHANGES_MAX: Final = 500  # of one read


class ChangeFeedNews:
    """Follows the changes of control and events. Sessions are read again when one of their rows changed."""

    interval_s = INTERVAL_S

    def __init__(self, tables: Tables, feed: ChangeFeed, clock: Clock) -> None:
        self._reader, self._feed, self._clock = MirrorReader(tables, clock), feed, clock
        self._group = keys.group_pk(GROUP)
        self._after: dict[TableName, int] = {}

    async def load(self, mirror: Mirror) -> AsyncGenerator[bool]:
        # Before anything is read: what changes meanwhile is read again as a change.
        position = await self._feed.last_position()
        self._after = {TableName.CONTROL: position, TableName.EVENTS: position}
        async for is_first in self._reader.load(mirror):
            yield is_first

    async def read(self, mirror: Mirror) -> None:
        last = await self._feed.last_position()
        if last < max(self._after.values()):
            raise NewsLost  # the file was replaced by an older one
        try:
            has_sessions = await self._follow(mirror, TableName.CONTROL, last)
            has_letters = await self._follow(mirror, TableName.EVENTS, last)
        except Trimmed as error:
            raise NewsLost from error
        if has_sessions:
            await self._reader.sessions(mirror)
        if has_letters:
            await self._reader.letters(mirror)

    async def _follow(self, mirror: Mirror, table: TableName, last: int) -> bool:
        """Apply the changes of a table up to `last` or beyond; return whether sessions or letters changed."""
        is_also, slices = False, Slices(self._clock)
        while self._after[table] < last:
            changes = await self._feed.changes(table, self._after[table], CHANGES_MAX)
            for change in changes:
                is_also = await self._apply(mirror, change) or is_also
                await slices.rest()
            if len(changes) < CHANGES_MAX:
                self._after[table] = max([last, *(change.position for change in changes[-1:])])
                break
            self._after[table] = changes[-1].position
        return is_also

    async def _apply(self, mirror: Mirror, change: Change) -> bool:
        key, row = change.key, change.image
        if change.table is TableName.EVENTS:
            if row is not None and keys.pipeline_of(key.pk) is not None:
                apply_event(mirror, row)
            return key.pk.startswith(LETTERS)
        if key.sk == keys.CONFIG and (pipeline := keys.pipeline_of(key.pk)):
            await apply_config(mirror, pipeline, row)
        else:
            apply_control(mirror, key, row)
        return key.pk == self._group and key.sk.startswith(keys.SESSION)
