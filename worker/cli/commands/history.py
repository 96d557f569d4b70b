"""`interlock history`: show every transition and attempt of one run."""

from datetime import datetime

import typer

from worker.cli.commands.explain import ExplainQuery, query_of
from worker.cli.terminal.arguments import PeriodMaybe, PipelineArgument, ScheduleOption, chosen_schedule
from worker.cli.terminal.console import Screen, counted, shown_time
from worker.cli.terminal.pipeline_lookup import say_unknown
from worker.cli.terminal.recent_periods import why_shown
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess, show_failure
from worker.core.model.ids import ScheduleId
from worker.core.model.keys import RunKey
from worker.core.model.run_names import shown_key, shown_run
from worker.core.model.values import Json
from worker.core.time.periods import Period
from worker.core.time.timestamps import format_rfc3339
from worker.operations.explain.default_period import DefaultRun, DefaultRuns
from worker.operations.pipelines.lookup import version_of
from worker.operations.runs.history import HistoryEntry, HistorySource, load, tell
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Tables

STYLES = {
    HistorySource.EVENT: "",
    HistorySource.JOB_LOG: "dim",
    HistorySource.RERUN: "yellow",
    HistorySource.RUN: "bold",
    HistorySource.SLA: "cyan",
}


async def run_history(screen: Screen, access: StoreAccess, asked: ExplainQuery, *, as_json: bool) -> int:
    now = access.clock.now()
    async with access.tables() as tables:
        found = await _key(tables, asked, now)
        if found is None:
            return await say_unknown(screen, tables, asked.pipeline)
        key, name, present = found
        moments = tell(await load(tables, key, now))
        if not moments and await Pipelines(tables).get(key.pipeline) is None:
            return await say_unknown(screen, tables, key.pipeline)
    if present is not None and not as_json:
        screen.remark(why_shown(present))
    if not moments:
        return _say_nothing_is_known(screen, key)
    if as_json:
        others: list[Json] = [str(period) for period in present.others] if present else []
        for moment in moments:
            screen.record({**record_of(key, moment), "otherActivePeriods": others})
    else:
        show_moments(screen, key, name, moments)
    return Exit.DONE


async def _key(tables: Tables, asked: ExplainQuery, now: datetime) -> tuple[RunKey, str, DefaultRun | None] | None:
    """Return the run, its name, and how it was chosen if no period was given.

    If both a period and a schedule are given, the schedule need not exist any more, because its records stay.
    """
    if asked.schedule is not None and asked.period is not None:
        key = RunKey(asked.pipeline, ScheduleId(asked.schedule), asked.period)
        return key, str(key), None
    version = await version_of(tables, asked.pipeline)
    if version is None:
        return None
    schedule = chosen_schedule(version.pipeline, asked.schedule)
    present = None if asked.period else await DefaultRuns(tables).of_schedule(version.pipeline, schedule, now)
    period = asked.period or (present.period if present else Period(now.date()))
    key = RunKey(asked.pipeline, schedule.id, period)
    return key, shown_run(key, version.pipeline), present


def _say_nothing_is_known(screen: Screen, key: RunKey) -> int:
    show_failure(
        screen,
        f"nothing is recorded about {shown_key(key)}",
        f"`interlock explain {key.pipeline} {key.period}` shows why",
    )
    return Exit.WRONG


def show_moments(screen: Screen, key: RunKey, name: str, moments: list[HistoryEntry]) -> None:
    screen.line(name, style="bold")
    rows = [row_of(key, moment) for moment in moments]
    screen.table(rows, styles=[STYLES[moment.source] for moment in moments])
    screen.line(counted(len(moments), "record"))


def row_of(key: RunKey, moment: HistoryEntry) -> tuple[str, ...]:
    at = shown_time(moment.at) if moment.at else "time unknown"
    attempt = f"attempt {moment.attempt}" if moment.attempt else ""
    what = moment.title or moment.status or moment.what
    # Most messages begin with the run, which the heading shows already.
    return at, moment.source.value, attempt, what, moment.message.removeprefix(str(key)).lstrip(": ")


def record_of(key: RunKey, moment: HistoryEntry) -> dict[str, Json]:
    return {
        "type": "moment",
        "pipeline": key.pipeline,
        "schedule": key.schedule,
        "period": str(key.period),
        "at": format_rfc3339(moment.at) if moment.at else None,
        "source": moment.source.value,
        "what": moment.what,
        "status": moment.status,
        "attempt": moment.attempt,
        "message": moment.message,
    }


history_app = typer.Typer()

HISTORY_HELP = f"""Show everything recorded about one run, oldest first.

Without PERIOD it is that of the active run (of several, the newest; the others are named), else the last one that ran \
or was expected. The job log and reruns are kept 30 days, events 90, the run itself 400.

\b
Examples:
  interlock history orders-daily
  interlock history orders-daily 2026-03-03 --schedule cron
  interlock history orders-daily 2026-03-03 --json | jq .what

{EXIT_CODES}"""


@history_app.command(help=HISTORY_HELP)
def history(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: PeriodMaybe = None,
    *,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_history(screen, at, query_of(pipeline, period, schedule), as_json=as_json)

    on_store(context, store, work)
