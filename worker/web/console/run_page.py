"""The page of one run: why it runs or does not, its attempts, and everything recorded about it."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from statistics import median
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.model.run_names import rerun_command
from worker.core.model.summaries import summary_text
from worker.core.model.values import Json, show
from worker.core.run.state import DryRun, DryState, ForeignRun, Outcome, Run, State, Status, status_word
from worker.core.time.durations import shown_duration
from worker.core.time.periods import Period
from worker.operations.explain.explanation import Condition, Gate
from worker.operations.pipelines.lookup import suggestion, version_of
from worker.operations.records import AttemptRecord
from worker.operations.redaction import without_secrets
from worker.operations.runs.history import HistoryEntry, HistorySource
from worker.operations.runs.run_records import attempt_records, deadline_record
from worker.operations.runs.run_view import RunView, RunViews, ViewedRun
from worker.store.repos.run_data import RunData
from worker.store.repos.runs import Runs
from worker.store.table import Tables
from worker.web.api.parameters import ID
from worker.web.console.console import Console, LivePart
from worker.web.console.gantt import GanttChart, gantt_chart
from worker.web.console.links import is_web_address
from worker.web.console.wording import (
    Age,
    Badge,
    age_of,
    deadline_badge,
    gate_badge,
    monitoring_badge,
    status_badge,
)
from worker.web.problems import ProblemType, WebProblem

REFRESH_S: Final = 10
HISTORY_SHOWN_MAX: Final = 200
ONE_MOMENT: Final = timedelta(seconds=1)
_VERDICTS: Final = {"warned": "SLA_WARNING", "breached": "SLA_BREACH", "met": "SLA_MET"}
USUAL_RUNS: Final = 31  # of its schedule: itself and 30 before
# An ended run is no obstacle that somebody should remove.
_ENDED: Final = Badge("\u2013", "ended", "waiting")


@dataclass(frozen=True, slots=True)
class GateLine:
    """GateLine is a row of the explanation: a gate with its sentence, or one of its conditions."""

    badge: Badge
    name: str
    sentence: str
    conditions: Sequence[Condition]


@dataclass(frozen=True, slots=True)
class DataText:
    """DataText is the data of one input or output, as indented JSON."""

    name: str
    text: str


async def run_page(console: Console, request: Request) -> Response:
    key = run_key_of(request)
    now = console.context.clock.now()
    view = await require_view(console, key, now)
    run, zone = view.run, zone_of(view)
    is_active = is_under_way(run)
    inputs, outputs = await _data(console, view)
    newest = list(reversed(list(without_doubles(view.history, key))))
    attempts = _attempts(run)
    return await console.page(
        request,
        "run.html",
        now=now,
        zone=zone,
        refresh_s=REFRESH_S if is_active else None,
        key=key,
        live_part=LivePart("run", console.links.run(key), str(key), key.pipeline),
        view=view,
        badge=status_badge(_word(view)),
        age=_age(run, now),
        age_is_over=_ended_at(run) is not None,
        deadline=deadline_badge(
            deadline_record(view.watch), now, ended_at=_ended_at(run), is_active=isinstance(run, Run) and is_active
        ),
        summary=summary_text(run.summary) if isinstance(run, Run) and run.summary else "",
        monitoring=monitoring_badge(run.monitored_until if isinstance(run, Run) else None, now),
        gates=_gates(view),
        chart=_chart(view, now, zone),
        attempts=attempts,
        log_attempt=next((each.attempt for each in attempts if each.started_at or each.job), None),
        usual=await _usual(console, view),
        history=newest[:HISTORY_SHOWN_MAX],
        history_total=len(newest),
        inputs=inputs,
        outputs=outputs,
        actions=run_actions(view),
        rerun_line=rerun_command(key, view.version.pipeline) if view.version and view.schedule else "",
        show=show,
        span=shown_duration,
        about=partial(_without_key, key=key),
        origin=run.origin if isinstance(run, Run) else "",
        has_schedules=view.version is None or len(view.version.pipeline.schedules) > 1,
        title_of=_title,
        is_web_address=is_web_address,
        outcome_badge=_outcome_badge,
    )


async def _usual(console: Console, view: RunView) -> timedelta | None:
    """Return how long a running job usually takes: the median of successes, else what is expected."""
    run, schedule = view.run, view.schedule
    if not isinstance(run, Run) or run.state is not State.POLLING or schedule is None:
        return None
    latest = await Runs(console.context.tables).of_schedule(run.key.pipeline, schedule.id, USUAL_RUNS)
    taken = [
        (each.since - each.started_at).total_seconds()
        for each in latest
        if isinstance(each, Run) and each.outcome is Outcome.SUCCEEDED and each.started_at is not None
    ]
    return timedelta(seconds=median(taken)) if taken else schedule.sla.expected_duration if schedule.sla else None


def run_key_of(request: Request) -> RunKey:
    """Return the run that a path names. Raises `WebProblem` for names that no run can have."""
    names = request.path_params
    period = Period.parse(names["period"]) or Period.parse_compact(names["period"])
    if period is None or not (re.match(ID, names["pipeline"]) and re.match(ID, names["schedule"])):
        raise WebProblem(ProblemType.NOT_FOUND, "a run is named by pipeline, schedule and period: 2027-03-22")
    return RunKey(PipelineId(names["pipeline"]), ScheduleId(names["schedule"]), period)


async def require_view(console: Console, key: RunKey, now: datetime) -> RunView:
    view = await RunViews(console.context.tables).load(key, now)
    if view is None:
        raise await _unknown(console.context.tables, key)
    return view


async def _unknown(tables: Tables, key: RunKey) -> WebProblem:
    """Return which part of a run's address is wrong: the pipeline, or its schedule."""
    if (version := await version_of(tables, key.pipeline)) is not None:
        names = ", ".join(each.id for each in version.pipeline.schedules)
        what = f"pipeline {key.pipeline} has no schedule {key.schedule}; it has {names}"
        return WebProblem(ProblemType.UNKNOWN_RUN, what)
    hint = await suggestion(tables, key.pipeline)
    what = f"there is no pipeline {key.pipeline} in the store"
    return WebProblem(ProblemType.UNKNOWN_PIPELINE, f"{what}; {hint}" if hint else what)


def run_actions(view: RunView) -> tuple[str, ...]:
    """Return what an operator can ask for: the forecast on the next page says what will come of it."""
    if view.version is None or view.schedule is None or view.is_unreadable:
        return ()
    is_active = isinstance(view.run, Run) and not view.run.is_ended
    resume_or_pause = "pause" if view.pause is None else "resume"
    return ("rerun", *(("cancel",) if is_active else ()), resume_or_pause)


def zone_of(view: RunView) -> tzinfo:
    return view.schedule.zone if view.schedule else UTC


def is_under_way(run: ViewedRun | None) -> bool:
    match run:
        case Run():
            return not run.is_ended
        case ForeignRun():
            return run.status == Status.RUNNING
        case DryRun():
            return run.state is DryState.EVALUATING
        case None:
            return True  # it may be created at any time


def _word(view: RunView) -> str | None:
    if view.is_unreadable:
        return "unreadable"
    return None if view.run is None else status_word(view.run, is_paused=view.pause is not None)


def _age(run: ViewedRun | None, now: datetime) -> Age | None:
    return age_of(run.since, now) if isinstance(run, Run | DryRun) else None


def _ended_at(run: ViewedRun | None) -> datetime | None:
    return run.since if isinstance(run, Run) and run.is_ended else None


def _gates(view: RunView) -> list[GateLine]:
    findings = view.explanation.findings if view.explanation else ()
    has_ended = isinstance(view.run, Run) and view.run.is_ended
    return [
        GateLine(
            _ENDED if has_ended and each.gate is Gate.RUN else gate_badge(each.passage.word),
            each.gate.value,
            each.sentence,
            [replace(one, seen=without_secrets(one.seen, one.subject.rpartition(".")[2])) for one in each.conditions],
        )
        for each in findings
    ]


def _chart(view: RunView, now: datetime, zone: tzinfo) -> GanttChart | None:
    return gantt_chart(view.run, view.watch, now, zone, view.history) if isinstance(view.run, Run) else None


def _attempts(run: ViewedRun | None) -> Sequence[AttemptRecord]:
    return list(reversed(list(attempt_records(run)))) if isinstance(run, Run) else ()


def _outcome_badge(attempt: AttemptRecord) -> Badge:
    match attempt.outcome:
        case None:
            return Badge("…", "active", "running")
        case "succeeded":
            return Badge("✓", "succeeded", "completed")
        case "cancelled" | "superseded" as word:
            return Badge("\u2013", word, "waiting")
        case word:
            return Badge("✕", word, "failed")


def _without_key(message: str, key: RunKey) -> str:
    """Return a message without the run's name in front: the page has it as its title."""
    return message.removeprefix(f"{key}").lstrip(": ") if message.startswith(f"{key}") else message


def without_doubles(history: Sequence[HistoryEntry], key: RunKey) -> Iterator[HistoryEntry]:
    """Yield the history without what a run's and its deadline's rows say again that an event says."""
    told = [each for each in history if each.source is HistorySource.EVENT and each.at is not None]
    for entry in history:
        if not any(_says(event, entry, key) for event in told):
            yield entry


def _says(event: HistoryEntry, entry: HistoryEntry, key: RunKey) -> bool:
    if entry.at is None or event.at is None or abs(event.at - entry.at) > ONE_MOMENT:
        return False
    match entry.source:
        case HistorySource.SLA:
            return entry.what in _VERDICTS and event.what.endswith(_VERDICTS[entry.what])
        case HistorySource.RUN if entry.status is not None:
            message = _without_key(event.message, key)
            return message.startswith(entry.status) and entry.message in message
        case _:
            return False


def _title(entry: HistoryEntry) -> str:
    return entry.status or entry.title or entry.what


async def _data(console: Console, view: RunView) -> tuple[list[DataText], DataText | None]:
    if not isinstance(view.run, Run):
        return [], None
    stored = RunData(console.context.tables)
    inputs, outputs = await stored.inputs([view.key]), await stored.outputs([view.key])
    found = inputs.get(view.key)
    shown = [
        DataText(name, _json(each.data) if each.data is not None else f"too large to keep: {each.size} bytes")
        for name, each in (found.inputs.items() if found else ())
    ]
    result = outputs.get(view.key)
    is_current = result is not None and result.attempt == view.run.attempt
    return shown, DataText("outputs", _json(result.outputs)) if result and is_current else None


def _json(data: Mapping[str, Json]) -> str:
    return json.dumps(without_secrets(data), indent=2, ensure_ascii=False, default=str)
