"""Alert probe: an event sent along the whole alert path, and the record of its arrival.

Two marks, in the partition of no pipeline. One records what was sent, in the same commit as the event itself. The other
records what arrived last; the component that delivers alerts writes it. Each mark has one writer, so neither waits for
the other.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from worker.core.model.ids import PipelineId
from worker.core.model.keys import watchdog_mark_sk
from worker.core.model.values import Json
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.store.repos.marks import Mark, Marks, move_write
from worker.store.table import Put, StaleWrite, Tables

_NOBODY: Final = PipelineId("")
_SENT: Final = watchdog_mark_sk("probe-sent")
_ARRIVED: Final = watchdog_mark_sk("probe-arrived")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertProbe:
    """Holds the last probe sent.

    `waiting_since` is when the oldest probe was sent since which none has arrived.
    """

    id: str
    sent_at: datetime
    waiting_since: datetime


@dataclass(frozen=True, slots=True)
class PathState:
    """Holds what is known of the alert path. `arrived` is the id of the last probe that arrived."""

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
        """Record that a probe reached the end of the alert path. Idempotent. Raises `RetryLater`."""
        seen = await self._marks.get(_NOBODY, _ARRIVED)
        if seen is None or _text(seen, "id") != probe_id:
            data: dict[str, Json] = {"id": probe_id, "at": format_rfc3339(now)}
            try:
                await self._tables.commit(move_write(_NOBODY, _ARRIVED, seen, data, now))
            except StaleWrite:
                return  # another probe arrived at the same moment: the path works either way


def sent_write(state: PathState, probe: AlertProbe) -> Put:
    """Build the mark of a sent probe for the commit of its event; stale if another was sent first."""
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
