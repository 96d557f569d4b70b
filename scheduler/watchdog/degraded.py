"""Report parts of Interlock that do not work: one event at the start, one at the end, none in between."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from scheduler.watchdog.expectations_loader import OURSELVES
from worker.core.model.events import Event, EventType
from worker.core.model.keys import WATCHDOG_DEGRADED, watchdog_mark_sk
from worker.core.model.values import Json
from worker.core.time.timestamps import format_rfc3339
from worker.engine.commits import random_id
from worker.runtime.clock import Clock
from worker.runtime.ids import NewId
from worker.runtime.logs import logger
from worker.store.repos.events import event_write
from worker.store.repos.marks import Marks, move_write
from worker.store.table import StaleWrite, Tables, Write

_MARK: Final = watchdog_mark_sk(WATCHDOG_DEGRADED)
PROBLEM_MAX: Final = 500
AT_ONCE_MAX: Final = 20  # parts that become degraded, and as many that recover, in one commit

T = TypeVar("T")

_log = logger()


@dataclass(frozen=True, slots=True)
class Trouble:
    """Trouble is what is wrong with a part.

    An uncertain one may be over in the next pass, so it is not emitted yet.
    """

    problem: str
    is_certain: bool = True


class Degraded:
    """Keeps the degraded parts in one row, so that the next holder neither repeats nor forgets an event."""

    def __init__(self, tables: Tables, clock: Clock, new_id: NewId = random_id) -> None:
        self._tables, self._clock, self._new_id = tables, clock, new_id
        self._marks = Marks(tables)

    async def note(self, troubles: Mapping[str, Trouble]) -> bool:
        """Emit an event for each new trouble and for each one that is over. Raises `RetryLater`.

        Return False if something is left to emit: call again then.
        """
        now, mark = self._clock.now(), await self._marks.get(OURSELVES, _MARK)
        known = dict(mark.data) if mark else {}
        begun = _some({name: each for name, each in troubles.items() if each.is_certain and name not in known})
        over = _some({name: since for name, since in known.items() if name not in troubles})
        if not begun and not over:
            return True
        noted = {name: since for name, since in known.items() if name not in over}
        noted |= dict.fromkeys(begun, format_rfc3339(now))
        writes: list[Write] = [
            move_write(OURSELVES, _MARK, mark, noted, now),
            # One event per part: each is an incident of its own, which ends by itself.
            *(event_write(self._begun(name, trouble, now)) for name, trouble in begun.items()),
            *(event_write(self._over(name, since, now)) for name, since in over.items()),
        ]
        try:
            await self._tables.commit(*writes)
        except StaleWrite:
            return False  # another watchdog emitted it; the next call emits the rest, if there is any
        for name, trouble in begun.items():
            # In the log as well, because the path of events may be broken.
            _log.error("watchdog.degraded", check=name, problem=trouble.problem)
        for name in over:
            _log.info("watchdog.recovered", check=name)
        return len(begun) < AT_ONCE_MAX and len(over) < AT_ONCE_MAX

    def _begun(self, name: str, trouble: Trouble, now: datetime) -> Event:
        problem = trouble.problem[:PROBLEM_MAX]
        return Event(
            id=self._new_id(),
            type=EventType.WATCHDOG_DEGRADED,
            at=now,
            message=f"part of the monitoring does not work: {name}: {problem}",
            detail={
                "source": "watchdog",
                "checks": [name],
                "problems": {name: problem},
                "actionHint": "see the log of the worker that holds the scheduler's lease; `interlock watchdog run`",
            },
        )

    def _over(self, name: str, since: Json, now: datetime) -> Event:
        return Event(
            id=self._new_id(),
            type=EventType.WATCHDOG_RECOVERED,
            at=now,
            message=f"works again: {name}",
            detail={"source": "watchdog", "checks": [name], "degradedSince": {name: since}},
        )


def _some(parts: Mapping[str, T]) -> dict[str, T]:
    """Return as many as one commit holds; the next pass emits the others."""
    return dict(sorted(parts.items())[:AT_ONCE_MAX])
