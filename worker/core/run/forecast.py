"""Forecast: predicts the answer to a request with the same rules that will decide on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from worker.core.model.effects import EmitEvent, Ignore
from worker.core.model.events import EventType, JobEvent
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.run import dry_run
from worker.core.run.effects import (
    BeginDryRun,
    Create,
    DryEffect,
    Effect,
    End,
    LogJob,
    MoveTo,
    NoteAfterStop,
    Reopen,
    WaiveDeadline,
)
from worker.core.run.facts import CancelRequested, RerunRequested, RunTriggered, TriggerRequested
from worker.core.run.machine import decide
from worker.core.run.state import Deletion, DryRun, Pause, Run

# Events that refuse a trigger request; a refused rerun also has a line in the job log.
_REFUSALS: Final = frozenset({EventType.TRIGGER_REJECTED, EventType.PIPELINE_EXCLUDED})


class Prospect(StrEnum):
    ACCEPTED = "accepted"
    WAITS = "waits"  # until a pause ends
    REFUSED = "refused"
    NOTHING = "nothing"  # it would be ignored


@dataclass(frozen=True, slots=True)
class Forecast:
    """Holds the predicted answer as things stand. The worker decides again, so the answer may differ.

    `remedy` says what helps against a refusal, if anything does.
    """

    prospect: Prospect
    sentence: str
    remedy: str = ""


def forecast(
    run: Run | None,
    pipeline: Pipeline,
    schedule: Schedule,
    fact: RerunRequested | TriggerRequested | CancelRequested | RunTriggered,
    now: datetime,
    *,
    pause: Pause | None = None,
    deletion: Deletion | None = None,
) -> Forecast:
    """Predict the answer to a request about a run; None means that the run does not exist yet."""
    decision = decide(run, pipeline, schedule, fact, now, pause=pause, deletion=deletion)
    if pause is not None and decision.is_held_back:
        return Forecast(
            Prospect.WAITS, f"the pipeline is paused ({pause.reason}), so the request waits until the pause ends"
        )
    return _told(decision.effects, run)


def forecast_dry_run(
    run: DryRun | None,
    pipeline: Pipeline,
    schedule: Schedule,
    fact: RerunRequested | TriggerRequested | RunTriggered,
    now: datetime,
) -> Forecast:
    """Predict the answer of a pipeline in dry run to a request for a run."""
    effects: Sequence[DryEffect] = dry_run.decide(run, pipeline, schedule, fact, now)
    told = next((effect for effect in effects if isinstance(effect, EmitEvent)), None)
    if told is None and any(isinstance(effect, BeginDryRun) for effect in effects):
        return Forecast(Prospect.ACCEPTED, "in dry run: the rules are evaluated, and no job starts")
    if told is None:
        return Forecast(Prospect.NOTHING, _reason(effects))
    is_refused = told.type in {EventType.DRY_RUN_RERUN_REJECTED, EventType.PIPELINE_EXCLUDED}
    return Forecast(Prospect.REFUSED if is_refused else Prospect.ACCEPTED, f"in dry run: {told.message}")


def _told(effects: Sequence[Effect], run: Run | None) -> Forecast:
    for effect in effects:
        sentence = _sentence(effect, run)
        if sentence is not None:
            return Forecast(Prospect.ACCEPTED, sentence)
    rejected = (each for each in effects if isinstance(each, LogJob) and each.event is JobEvent.RERUN_REJECTED)
    refusal = next(rejected, None)
    if refusal is not None:
        return Forecast(Prospect.REFUSED, refusal.message, _remedy(effects))
    if told := next((each for each in effects if isinstance(each, EmitEvent) and each.type in _REFUSALS), None):
        return Forecast(Prospect.REFUSED, str(told.detail.get("reason") or told.message), _remedy(effects))
    return Forecast(Prospect.NOTHING, _reason(effects))


def _sentence(effect: Effect, run: Run | None) -> str | None:
    following = run.attempt + 1 if run else 1
    match effect:
        case Create():
            return "the run starts when its rules pass"
        case Reopen():
            return f"attempt {following} starts when its rules pass"
        case MoveTo(rerun_reason=reason) if reason:
            return f"the running job is stopped first, then attempt {following} starts"
        case MoveTo():
            return "the job is stopped first"
        case End():
            return "it takes effect immediately"
        case NoteAfterStop():
            return "the run is already stopping, then it is cancelled"
        case WaiveDeadline():
            return "there is no run to cancel; its deadline is waived"
        case _:
            return None


def _remedy(effects: Sequence[Effect]) -> str:
    hints = (effect.detail.get("actionHint") for effect in effects if isinstance(effect, EmitEvent))
    return next((hint for hint in hints if isinstance(hint, str)), "")


def _reason(effects: Sequence[Effect] | Sequence[DryEffect]) -> str:
    return next((effect.reason for effect in effects if isinstance(effect, Ignore)), "nothing would change")
