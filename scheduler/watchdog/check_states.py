"""Store when each check ran last with the watchdog's progress, so that other processes can list it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from scheduler.watchdog.expectations_loader import OURSELVES
from worker.core.model.keys import WATCHDOG_LEDGER, watchdog_mark_sk
from worker.core.model.values import Json
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.store.repos.marks import Marks
from worker.store.table import Tables

PROBLEM_MAX: Final = 200
_CHECKS: Final = "checks"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckState:
    """CheckState says when a check ended last, and with which problem; "": none."""

    name: str
    every: timedelta
    ended_at: datetime
    problem: str = ""

    @property
    def next_at(self) -> datetime:
        """Return about when it runs next: it may take a while itself."""
        return self.ended_at + self.every


def states_data(states: Sequence[CheckState]) -> Mapping[str, Json]:
    """Return the part of the watchdog's mark that lists its checks."""
    checks: dict[str, Json] = {
        each.name: {
            "every": int(each.every.total_seconds()),
            "at": format_rfc3339(each.ended_at),
            **({"problem": each.problem[:PROBLEM_MAX]} if each.problem else {}),
        }
        for each in states
    }
    return {_CHECKS: checks}


async def load_states(tables: Tables) -> Sequence[CheckState]:
    """Return the checks by name, as the last holder of the scheduler's lease stored them.

    An older version stores none.
    """
    mark = await Marks(tables).get(OURSELVES, watchdog_mark_sk(WATCHDOG_LEDGER))
    found = mark.data.get(_CHECKS) if mark else None
    if not isinstance(found, Mapping):
        return []
    return [state for name, said in sorted(found.items()) if (state := _state(name, said)) is not None]


def _state(name: str, said: Json) -> CheckState | None:
    if not isinstance(said, Mapping):
        return None
    every, at, problem = said.get("every"), said.get("at"), said.get("problem", "")
    ended_at = parse_rfc3339(at) if isinstance(at, str) else None
    if not isinstance(every, int) or ended_at is None or not isinstance(problem, str):
        return None
    return CheckState(name=name, every=timedelta(seconds=every), ended_at=ended_at, problem=problem)
