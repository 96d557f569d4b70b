"""`interlock explain`: show every gate of a run, and what would make a blocked gate pass."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import typer

from worker.cli.terminal.arguments import PeriodMaybe, PipelineArgument, ScheduleOption, chosen_schedules, read_period
from worker.cli.terminal.console import Screen
from worker.cli.terminal.pipeline_lookup import say_unknown
from worker.cli.terminal.recent_periods import why_shown
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.cli.terminal.worker_presence import warn_if_no_live_worker
from worker.config.versions import Unusable, Version
from worker.core.model.ids import STREAM_SCHEDULE, PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.model.values import Json
from worker.core.time.periods import Period
from worker.core.time.timestamps import format_rfc3339
from worker.operations.explain.default_period import DefaultRun, DefaultRuns
from worker.operations.explain.explanation import Condition, Explanation, GateFinding, GateStatus
from worker.operations.explain.explanation_record import explanation_record
from worker.operations.explain.gates import explain, explain_unusable
from worker.operations.explain.load import SnapshotLoader
from worker.operations.explain.stored_readiness import StoredReadiness, compare_readiness
from worker.store.repos.readiness import ReadinessRows
from worker.store.table import Tables

STYLES = {GateStatus.OPEN: "green", GateStatus.CLOSED: "red", GateStatus.UNKNOWN: "yellow"}


@dataclass(frozen=True, slots=True)
class Explained:
    """Explained holds an explanation. `present` is None if the user gave the period."""

    explanation: Explanation
    present: DefaultRun | None = None
    stored: StoredReadiness | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainQuery:
    """ExplainQuery says which runs to explain.

    `period` None means that of the newest active run, else the last that ran or was expected. `schedule` None means
    every schedule.
    """

    pipeline: PipelineId
    period: Period | None
    schedule: str | None


async def run_explain(screen: Screen, access: StoreAccess, asked: ExplainQuery, *, as_json: bool) -> int:
    """Explain the selected runs.

    A blocked gate is an answer and gives exit code 0; an invalid configuration gives 1.
    """
    now = access.clock.now()
    async with access.tables() as tables:
        match await SnapshotLoader(tables).version(asked.pipeline):
            case None:
                return await say_unknown(screen, tables, asked.pipeline)
            case Unusable(problems=problems):
                explained, code = [Explained(explain_unusable(_named(asked, now), problems))], Exit.PROBLEMS
            case Version() as version:
                explained, code = await explain_each(tables, version, asked, now), Exit.DONE
        for each in explained:
            show_explanation(screen, each, as_json=as_json)
        if not as_json:
            await warn_if_no_live_worker(screen, tables, now)
    return code


async def explain_each(tables: Tables, version: Version, asked: ExplainQuery, now: datetime) -> list[Explained]:
    explained: list[Explained] = []
    for schedule in chosen_schedules(version.pipeline, asked.schedule):
        present = None if asked.period else await DefaultRuns(tables).of_schedule(version.pipeline, schedule, now)
        period = asked.period or (present.period if present else Period(now.date()))
        sight = await SnapshotLoader(tables).at(RunKey(asked.pipeline, schedule.id, period), version, now)
        explanation = explain(sight)
        stored = await ReadinessRows(tables).load(asked.pipeline, schedule.id)
        explained.append(Explained(explanation, present, compare_readiness(explanation, stored)))
    return explained


def _named(asked: ExplainQuery, now: datetime) -> RunKey:
    """Return the key of the run to show if the configuration, and so its schedules, cannot be read."""
    schedule = ScheduleId(asked.schedule) if asked.schedule else STREAM_SCHEDULE
    return RunKey(asked.pipeline, schedule, asked.period or Period(now.date()))


def show_explanation(screen: Screen, explained: Explained, *, as_json: bool) -> None:
    explanation, present = explained.explanation, explained.present
    if as_json:
        others: list[Json] = [str(period) for period in present.others] if present else []
        stored: Json = explained.stored.record if explained.stored else None
        screen.record({**explanation_record(explanation), "otherActivePeriods": others, "readiness": stored})
        return
    if present is not None:
        screen.remark(why_shown(present))
    screen.line(explanation.name, style="bold")
    screen.line(f"  {explanation.summary}\n")
    if explained.stored and explained.stored.differs:
        screen.line(f"  {explained.stored.sentence}\n", style="yellow")
    rows = [(row, style) for finding in explanation.findings for row, style in rows_of(finding)]
    screen.table([row for row, _ in rows], styles=[style for _, style in rows])
    if explanation.needed:
        screen.line("\nTo make it run:", style="bold")
        screen.table([(f"{number}.", change) for number, change in enumerate(explanation.needed, start=1)])
    screen.line()


def rows_of(finding: GateFinding) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield the gate's row, then a row for each of its conditions."""
    yield (finding.gate.value, finding.passage.word, finding.sentence), STYLES[finding.passage]
    for condition in finding.conditions:
        if len(finding.conditions) == 1 and sentence_of(condition) in finding.sentence:
            continue  # the gate's sentence says it already
        mark = "yes" if condition.passed else "no"
        yield ("", mark, sentence_of(condition)), "" if condition.passed else "red"


def sentence_of(condition: Condition) -> str:
    notes = [f"read from {condition.sensor}"] if condition.sensor else []
    notes += [f"written {format_rfc3339(condition.changed_at)}"] if condition.changed_at else []
    notes += ["changed since the job started"] if condition.is_news else []
    return f"{condition.reason} ({'; '.join(notes)})" if notes else condition.reason


explain_app = typer.Typer()

EXPLAIN_HELP = f"""Explain why a pipeline runs or does not, and what would make it run.

The gates are the configuration, schedule, calendar, pause, trigger, run, rules, budgets and deadline. Each condition \
shows the value seen and the value wanted. Without PERIOD it is that of the active run (of several, the newest; the \
others are named), else the last one that ran or was expected.

\b
Examples:
  interlock explain orders-daily
  interlock explain orders-daily 2026-03-03
  interlock explain orders-daily 2026-03-03 --json | jq .needed

{EXIT_CODES}"""


def query_of(pipeline: str, period: str | None, schedule: str | None) -> ExplainQuery:
    meant = read_period(period) if period else None
    return ExplainQuery(pipeline=PipelineId(pipeline), period=meant, schedule=schedule)


@explain_app.command("explain", help=EXPLAIN_HELP)
def explain_run(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: PeriodMaybe = None,
    *,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_explain(screen, at, query_of(pipeline, period, schedule), as_json=as_json)

    on_store(context, store, work)
