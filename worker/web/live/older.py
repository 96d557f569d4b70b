"""Outcomes from before the mirror's window, for schedules that somebody looks at; each is read once."""

from collections.abc import Iterable
from typing import Final

from worker.core.model import keys
from worker.runtime.clock import Clock
from worker.store.rows import first_rows, loose_text
from worker.store.table import Prefix, TableName, Tables
from worker.web.live.facts import FinishedRun, run_name, run_of
from worker.web.live.mirror import HISTORY_MAX, Mirror
from worker.web.live.slices import Slices

WANTED_MAX: Final = 1_000
SMALL: Final = 200  # pipelines; so many are read with the mirror itself
AT_ONCE: Final = 10  # schedules that one step reads


class OlderOutcomes:
    """Reads the last runs of schedules from their own partitions, a few at a time."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables, self._clock = tables, clock
        self._wanted: dict[tuple[str, str], None] = {}

    def want(self, schedules: Iterable[tuple[str, str]], mirror: Mirror) -> None:
        for pipeline, schedule in schedules:
            if f"{pipeline}/{schedule}" not in mirror.older and len(self._wanted) < WANTED_MAX:
                self._wanted[pipeline, schedule] = None

    def want_all_of_few(self, mirror: Mirror) -> None:
        """Want every schedule of a small installation, so that its first page is complete."""
        if len(mirror.ids) <= SMALL:
            self.want(((each.id, name) for each in mirror.catalogue.values() for name in each.schedules), mirror)

    async def fill(self, mirror: Mirror, limit: int = AT_ONCE) -> None:
        """Read what is wanted. Raises `RetryLater`."""
        slices = Slices(self._clock)
        for pipeline, schedule in list(self._wanted)[:limit]:
            runs = await self._runs(pipeline, schedule)
            late = await self._late(pipeline, schedule) if runs else set[str]()
            mirror.see_older(pipeline, schedule, runs, late)
            self._wanted.pop((pipeline, schedule), None)
            await slices.rest()

    async def _runs(self, pipeline: str, schedule: str) -> list[FinishedRun]:
        begin, partition = Prefix(f"{keys.TRIGGER}{schedule}#"), keys.pipeline_pk(pipeline)
        rows = await first_rows(self._tables, TableName.CONTROL, partition, sk=begin, reverse=True, limit=HISTORY_MAX)
        return [run for row in rows if isinstance(run := run_of(row), FinishedRun)]

    async def _late(self, pipeline: str, schedule: str) -> set[str]:
        begin, partition = Prefix(f"{keys.SLA}{schedule}#"), keys.pipeline_pk(pipeline)
        rows = await first_rows(self._tables, TableName.CONTROL, partition, sk=begin, reverse=True, limit=HISTORY_MAX)
        breached = (row for row in rows if loose_text(row, "verdict") == "BREACHED")
        return {name.key for row in breached if (name := run_name(str(row["PK"]), str(row["SK"]), keys.SLA))}
