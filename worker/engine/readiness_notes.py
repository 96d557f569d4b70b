"""Readiness notes: keep each schedule's last result for readers, and write it only if it is news."""

from collections import OrderedDict
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias

from worker.core.errors import RetryLater
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.model.readiness import Readiness, ReadinessVerdict
from worker.core.run.evaluation import is_news, readiness_of
from worker.core.run.facts import RulesHeld, RulesNotHeld, UpstreamsNotMet
from worker.runtime.clock import Clock
from worker.store import retention
from worker.store.repos.readiness import ReadinessRows
from worker.store.table import StaleWrite, Tables

KNOWN_MAX: Final = 10_000
TRIES_MAX: Final = 2  # nothing depends on the row, and the next change writes it anyway

Evaluated: TypeAlias = RulesHeld | RulesNotHeld | UpstreamsNotMet


class ReadinessNotes:
    """Remembers the rows that it read or wrote, so that an evaluation without news costs nothing."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._rows, self._clock = ReadinessRows(tables), clock
        self._known: OrderedDict[tuple[PipelineId, ScheduleId], Readiness] = OrderedDict()

    def was_ready(self, key: RunKey) -> bool:
        """Return whether the rules of the schedule held when they were last evaluated here."""
        known = self._remembered(key)
        return known is not None and known.verdict is ReadinessVerdict.READY

    def in_commit(self, key: RunKey, fact: Evaluated) -> Evaluated:
        """Return the fact with the row that the run's commit is to replace: one that waits for this run."""
        known = self._remembered(key)
        if not isinstance(fact, RulesHeld) or known is None or known.key != key:
            return fact
        is_waiting = known.verdict is ReadinessVerdict.WAITING
        return replace(fact, readiness_version=known.version) if is_waiting else fact

    async def note(self, key: RunKey, fact: Evaluated) -> None:
        """Write the result if it is news. If the store does not respond, the old row stays."""
        if isinstance(fact, RulesHeld) and fact.readiness_version is not None:
            self._forget(key)  # the run's commit may have replaced it
        try:
            for _ in range(TRIES_MAX):
                known = self._remembered(key) or await self._read(key)
                if not is_news(known, key, fact):
                    return
                try:
                    new = readiness_of(key, fact, self._clock.now(), known.version if known else 0)
                    self._remember(await self._rows.save(new, self._clock.now()))
                except StaleWrite:
                    self._forget(key)
                else:
                    return
        except RetryLater:
            self._forget(key)

    async def _read(self, key: RunKey) -> Readiness | None:
        found = await self._rows.load(key.pipeline, key.schedule)
        if found is not None:
            self._remember(found)
        return found

    def _remembered(self, key: RunKey) -> Readiness | None:
        known = self._known.get((key.pipeline, key.schedule))
        return None if known is None or self._is_over(known, self._clock.now()) else known

    def _is_over(self, known: Readiness, now: datetime) -> bool:
        return now >= known.changed_at + retention.READINESS

    def _remember(self, found: Readiness) -> None:
        self._known[found.key.pipeline, found.key.schedule] = found
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def _forget(self, key: RunKey) -> None:
        self._known.pop((key.pipeline, key.schedule), None)
