"""Say what each expected run waits for: from files alone, or with states from the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from worker.core.dependencies.planned_waits import planned_waits
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.core.model.rules import Json
from worker.core.schedule.agenda import PlanEntry


@dataclass(frozen=True, slots=True)
class RunStanding:
    """RunStanding says how far a run is, and for each item of `after` what it waits for or that it is met."""

    status: str
    has_begun: bool
    items: tuple[str, ...]
    root_cause: str = ""  # the failed run further above, if there is one


@dataclass(frozen=True, slots=True)
class FileWaits:
    """FileWaits knows the pipelines of all files, and what was read of the runs by schedule and period."""

    known: Mapping[PipelineId, Pipeline]
    states: Mapping[tuple[str, str], RunStanding] = field(default_factory=dict[tuple[str, str], RunStanding])

    def sentences(self, entry: PlanEntry) -> list[str]:
        """Return what one run waits for; nothing for a run that is excluded."""
        if not entry.schedule.after or entry.run.excluded is not None:
            return []
        standing = self.standing(entry)
        if standing is None:
            return [str(wait) for wait in planned_waits(entry.schedule, entry.run.period, self.known)]
        cause = [f"root cause: {standing.root_cause}"] if standing.root_cause else []
        return [standing.status] if standing.has_begun else [*standing.items, *cause]

    def record(self, entry: PlanEntry) -> dict[str, Json]:
        """Return the fields of a run's record: its own state, and what it waits for."""
        standing = self.standing(entry)
        states: Sequence[str | None] = standing.items if standing else [None] * len(entry.schedule.after)
        waits = planned_waits(entry.schedule, entry.run.period, self.known)
        items: list[Json] = [{**wait.record, "state": state} for wait, state in zip(waits, states, strict=True)]
        return {"status": standing.status if standing else None, "waitsFor": items}

    def standing(self, entry: PlanEntry) -> RunStanding | None:
        return self.states.get((entry.name, str(entry.run.period)))
