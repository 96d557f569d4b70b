"""Related rows: the rows besides the run's that a decision depends on.

Each is read before the commit, and only if the decision needs it.
"""

from dataclasses import dataclass, replace

from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.core.run.decision import Decision
from worker.core.run.effects import (
    JudgeDeadline,
    JudgeEvaluation,
    KeepBaseline,
    PutRerunRequest,
    RecordRerun,
    WaiveDeadline,
    WatchDeadline,
)
from worker.core.sla.state import SlaWatch
from worker.store.repos.marks import Mark, Marks
from worker.store.repos.requests import Requests, RerunRequest
from worker.store.repos.reruns import Reruns
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedRows:
    """Holds the rows as they were read, or None. If one changes before the commit, the commit is stale."""

    rerun_number: int = 0  # the next free number in the record of reruns
    request: RerunRequest | None = None
    baseline: Mark | None = None
    watch: SlaWatch | None = None


class RelatedRowsReader:
    def __init__(self, tables: Tables) -> None:
        self._reruns, self._requests = Reruns(tables), Requests(tables)
        self._marks, self._watches = Marks(tables), SlaWatches(tables)

    async def read(self, key: RunKey, decision: Decision) -> RelatedRows:
        """Read the rows that the effects of a decision depend on. Raises `RetryLater` and `BadRow`."""
        rows = RelatedRows()
        for effect in decision.effects:
            match effect:
                case RecordRerun():
                    rows = replace(rows, rerun_number=await self._reruns.next_number(key))
                case PutRerunRequest():
                    rows = replace(rows, request=await self._requests.rerun_of(key))
                case KeepBaseline():
                    rows = replace(rows, baseline=await self._marks.get(key.pipeline, keys.baseline_mark_sk(key)))
                case WatchDeadline() | JudgeDeadline() | JudgeEvaluation() | WaiveDeadline():
                    rows = replace(rows, watch=await self._watches.load(key))
                case _:
                    continue
        return rows
