"""The probe that is sent along the whole way of an alert, and the word that it arrived.

Two marks, in the partition of no pipeline: one says what was sent, in the same commit as the event that is sent; the
other what last arrived, written by whoever hands alerts to people. Each has one writer, so neither waits for the other.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from worker.core.model.keys import watchdog_mark_sk
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.store.repos.marks import Mark, Marks, move_write
from worker.store.table import Put, StaleWrite, Tables

_NOBODY: Final = PipelineId("")
_SENT: Final = watchdog_mark_sk("probe-sent")
_ARRIVED: Final = watchdog_mark_sk("probe-arrived")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertProbe:
    """The last probe sent. `waiting_since`: when the first one was sent that has not been answered by any later one."""

    id: str
    sent_at: datetime
    waiting_since: datetime


@dataclass(frozen=True, slots=True)
class PathState:
    """What is known of the way. `arrived` is the id of the last probe that came through."""

    probe: AlertProbe | None
    arrived: str | None
    seen: Mark | None = None

    @property
    def is_answered(self) -> bool:
        return self.probe is not None and self.probe.id == self.arrived


class AlertPath:
    def __init__(self, tables: Tables) -> None:
        self._tables, self._marks = tables, Marks(tables)

    async def load(self) -> PathState:
        sent, arrived = await self._marks.get(_NOBODY, _SENT), await self._marks.get(_NOBODY, _ARRIVED)
        return PathState(_probe(sent), _text(arrived, "id") if arrived else None, sent)

    async def acknowledge(self, probe_id: str, now: datetime) -> None:
        """Say that a probe came through to where people are told. May be repeated. Raises `RetryLater`."""
        seen = await self._marks.get(_NOBODY, _ARRIVED)
        if seen is None or _text(seen, "id") != probe_id:
            data: dict[str, Json] = {"id": probe_id, "at": format_rfc3339(now)}
            try:
                await self._tables.commit(move_write(_NOBODY, _ARRIVED, seen, data, now))
            except StaleWrite:
                return  # another one came through at the same moment: the way is open either way


def sent_write(state: PathState, probe: AlertProbe) -> Put:
    """Build the note of a probe: it belongs in the commit of its event, and is stale if another sent one first."""
    data: dict[str, Json] = {
        "id": probe.id,
        "at": format_rfc3339(probe.sent_at),
        "waitingSince": format_rfc3339(probe.waiting_since),
    }
    return move_write(_NOBODY, _SENT, state.seen, data, probe.sent_at)


def _probe(mark: Mark | None) -> AlertProbe | None:
    if mark is None:
        return None
    sent_at, since = parse_rfc3339(_text(mark, "at")), parse_rfc3339(_text(mark, "waitingSince"))
    if sent_at is None or since is None:
        return None
    return AlertProbe(id=_text(mark, "id"), sent_at=sent_at, waiting_since=since)


def _text(mark: Mark, name: str) -> str:
    value = mark.data.get(name)
    return value if isinstance(value, str) else ""
