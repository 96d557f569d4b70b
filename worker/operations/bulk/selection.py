"""Selects the runs of a bulk operation: by a filter, or from a list of keys."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from worker.core.model.keys import RunKey
from worker.core.time.timestamps import format_rfc3339
from worker.operations.runs.run_filter import RunFilter, window_of
from worker.operations.runs.run_query import RunQueries
from worker.store.repos.bulk_operations import BulkAction
from worker.store.repos.runs import UnreadableRow
from worker.store.table import Tables

RUNS_MAX: Final = 1_000
PAGES_MAX: Final = 50  # of at most 2,000 examined rows each
# Which runs an operation is about if the filter does not say: it has no effect on others.
_STATUSES: Final = {BulkAction.RERUN: ("ended",), BulkAction.CANCEL: ("active",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSelection:
    """Holds the runs of an operation. `left_out` says what does not fit or cannot be read; "" if nothing."""

    runs: Sequence[RunKey]
    left_out: str = ""

    @property
    def digest(self) -> str:
        """Return one text for the same runs in any order."""
        return digest_of(sorted(str(key) for key in self.runs))


def digest_of(parts: Iterable[str]) -> str:
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def fixed_filter(wanted: RunFilter, action: BulkAction, now: datetime) -> RunFilter:
    """Return the filter with absolute times and states, so that it means the same later.

    Raises `BadFilter` and `WindowTooLong`.
    """
    window = window_of(wanted, now)
    return replace(
        wanted,
        statuses=wanted.statuses or _STATUSES[action],
        since=format_rfc3339(window.start),
        until=format_rfc3339(window.end),
    )


async def select_by_filter(tables: Tables, wanted: RunFilter, now: datetime) -> RunSelection:
    """Return at most `RUNS_MAX` runs that match. Raises `BadFilter`, `WindowTooLong` and `RetryLater`."""
    queries, found, unreadable = RunQueries(tables), dict[RunKey, None](), 0
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await queries.find(wanted, now, limit=RUNS_MAX, cursor=cursor)
        unreadable += sum(isinstance(run, UnreadableRow) for run in page.runs)
        found |= {run.key: None for run in page.runs if not isinstance(run, UnreadableRow)}
        cursor = page.next
        if cursor is None or len(found) > RUNS_MAX:
            break
    runs = list(found)
    notes: list[str] = []
    if cursor is not None or len(runs) > RUNS_MAX:
        notes.append(f"only the first {min(len(runs), RUNS_MAX):,} runs are selected; there are or may be more")
    if unreadable:
        notes.append(f"{unreadable:,} rows cannot be read and are left out")
    return RunSelection(runs=runs[:RUNS_MAX], left_out="; ".join(notes))


def select_keys(runs: Iterable[RunKey]) -> RunSelection:
    """Return at most `RUNS_MAX` of the keys, each once."""
    each_once = list(dict.fromkeys(runs))
    rest = len(each_once) - RUNS_MAX
    left_out = f"only the first {RUNS_MAX:,} of {len(each_once):,} runs are selected" if rest > 0 else ""
    return RunSelection(runs=each_once[:RUNS_MAX], left_out=left_out)
