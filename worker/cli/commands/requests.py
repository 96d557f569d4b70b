"""`interlock rerun|replay|cancel|pause|resume`: request a change of runs and show its forecast."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from worker.cli.commands.pauses import PauseSpec, ResumeSpec, run_pause, run_resume
from worker.cli.terminal.arguments import (
    PipelineArgument,
    ScheduleOption,
    chosen_schedule,
    chosen_schedules,
    read_period,
    read_reason,
)
from worker.cli.terminal.authors import AsWho, author_of
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.pipeline_lookup import say_unknown
from worker.cli.terminal.recent_periods import say_period_missing
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.cli.terminal.worker_presence import warn_if_no_live_worker
from worker.config.versions import Version
from worker.core.errors import ConfigError
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.model.run_names import shown_run
from worker.core.model.values import Json
from worker.core.run.forecast import Prospect
from worker.core.run.reruns import DATA_DRIFT, LATE_DATA, REPLAY
from worker.core.time.periods import Period
from worker.operations.operator_actions import Requester
from worker.operations.pipelines.lineage import RunsBelow, runs_below
from worker.operations.pipelines.lookup import version_of
from worker.operations.runs.replay_range import is_due, replayed
from worker.operations.runs.requests import RequestOutcome, RerunSpec, RunRequests
from worker.store.repos.requests import DEFAULT_REASON

OUR_REASONS = frozenset({LATE_DATA, DATA_DRIFT, REPLAY})  # reserved: the reason decides which budget is charged
STYLES = {Prospect.ACCEPTED: "green", Prospect.WAITS: "yellow", Prospect.REFUSED: "red", Prospect.NOTHING: "red"}
NOUNS = {"rerun": "Rerun", "cancel": "Cancellation", "trigger": "Trigger", "cascade": "Cascade"}
GOOD = frozenset({Prospect.ACCEPTED, Prospect.WAITS})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSelector:
    """RunSelector selects runs and the form of the answer.

    With `is_dry`, the command shows the forecast and writes no request. `by` is recorded as the author; None if the
    request itself names its author.
    """

    pipeline: PipelineId
    schedule: str | None
    by: Requester | None = None
    is_dry: bool
    as_json: bool


async def run_without_period(screen: Screen, access: StoreAccess, whom: RunSelector, command: str) -> int:
    """Say that the command needs a period, and list the last ones."""
    async with access.tables() as tables:
        version = await version_of(tables, whom.pipeline)
        if version is None:
            return await say_unknown(screen, tables, whom.pipeline)
        schedules = chosen_schedules(version.pipeline, whom.schedule)
        return await say_period_missing(screen, tables, command, version.pipeline, schedules)


async def run_rerun(screen: Screen, access: StoreAccess, whom: RunSelector, period: Period, wish: RerunSpec) -> int:
    if wish.reason in OUR_REASONS:
        raise ConfigError(f"the reason {wish.reason!r} is reserved for the worker; use other words")

    async def ask(asking: RunRequests, version: Version) -> int:
        asked = await asking.rerun(selected_key(whom, version, period), version, wish)
        show_asked(screen, "rerun", asked, wish.reason, version, as_json=whom.as_json)
        if not whom.as_json and asked.is_first and asked.forecast.prospect in GOOD:
            remark_if_odd(screen, asked.key, chosen_schedule(version.pipeline, whom.schedule), access.clock.now())
        return exit_code([asked])

    return await with_version(screen, access, whom, ask)


async def run_cancel(
    screen: Screen, access: StoreAccess, whom: RunSelector, period: Period, *, reason: str, waive_sla: bool
) -> int:
    async def ask(asking: RunRequests, version: Version) -> int:
        asked = await asking.cancel(selected_key(whom, version, period), version, reason, waive_sla=waive_sla)
        show_asked(screen, "cancel", asked, reason, version, as_json=whom.as_json)
        return Exit.WRONG if asked.is_first and asked.forecast.prospect not in GOOD else exit_code([asked])

    return await with_version(screen, access, whom, ask)


async def run_replay(
    screen: Screen,
    access: StoreAccess,
    whom: RunSelector,
    span: tuple[Period, Period],
    *,
    wish: RerunSpec,
    consent: Consent,
) -> int:
    """Request a rerun for each period.

    If a commit fails, the earlier ones stay, and the error says from which period to continue. With `wish.is_followed`,
    the runs below are shown first; they follow by themselves, each once its upstreams are complete.
    """

    async def ask(asking: RunRequests, version: Version) -> int:
        schedule = chosen_schedule(version.pipeline, whom.schedule)
        periods = replayed(schedule, *span, access.clock.now())
        count = counted(len(periods), "period")
        question = f"Run {count} of {whom.pipeline}/{schedule.id} again, from {periods[0]} to {periods[-1]}?"
        keys = [RunKey(whom.pipeline, schedule.id, period) for period in periods]
        if wish.is_followed:
            async with access.tables() as tables:
                show_below(screen, await runs_below(tables, access.clock, keys), as_json=whom.as_json)
        if not whom.is_dry and not consent.obtain(screen, question):
            screen.remark("nothing was requested")
            return Exit.DONE
        asked = await asking.replay(keys, version, wish)
        show_replay(screen, asked, as_json=whom.as_json)
        return exit_code(asked)

    return await with_version(screen, access, whom, ask)


async def with_version(
    screen: Screen, access: StoreAccess, whom: RunSelector, ask: Callable[[RunRequests, Version], Awaitable[int]]
) -> int:
    async with access.tables() as tables:
        version = await version_of(tables, whom.pipeline)
        if version is None:
            return await say_unknown(screen, tables, whom.pipeline)
        code = await ask(RunRequests(tables, access.clock, is_rehearsed=whom.is_dry, by=whom.by), version)
        if not whom.as_json and not whom.is_dry:
            await warn_if_no_live_worker(screen, tables, access.clock.now())
        return code


def selected_key(whom: RunSelector, version: Version, period: Period) -> RunKey:
    return RunKey(whom.pipeline, chosen_schedule(version.pipeline, whom.schedule).id, period)


def remark_if_odd(screen: Screen, key: RunKey, schedule: Schedule, now: datetime) -> None:
    """Warn about a period that the schedule does not expect.

    A mistyped period would otherwise create a run, and its job would run on data that does not exist.
    """
    if not is_due(schedule, key.period, now):
        says = f"`interlock explain {key.pipeline} {key.period}` says what it expects"
        expected = f"schedule {schedule.id} expects no run of {key.period}, or not yet"
        screen.remark(f"warning: {expected}; {says}", style="yellow")


def exit_code(asked: list[RequestOutcome]) -> Exit:
    return Exit.DONE if all(each.forecast.prospect in GOOD for each in asked) else Exit.PROBLEMS


# --- output -----------------------------------------------------------------------------------------------------------


def show_asked(
    screen: Screen,
    what: str,
    asked: RequestOutcome,
    reason: str,
    version: Version,
    *,
    as_json: bool,
    by: str | None = None,
) -> None:
    if as_json:
        who: dict[str, Json] = {} if by is None else {"requestedBy": by}
        screen.record({"type": what, **record_of(asked), "reason": reason, **who})
        return
    name = shown_run(asked.key, version.pipeline)
    screen.line(answer(NOUNS[what], name, asked, reason), STYLES[asked.forecast.prospect])
    if asked.replaced is not None and asked.is_written:
        before = asked.replaced
        screen.remark(f'it replaces the request of {before.requested_at} ("{before.reason}"), which was still waiting')


def answer(noun: str, name: str, asked: RequestOutcome, reason: str) -> str:
    sentence, remedy = asked.forecast.sentence, asked.forecast.remedy
    if asked.is_written:
        return f'{noun} requested for {name} ("{reason}"); {sentence}.'
    match asked.forecast.prospect:
        case Prospect.ACCEPTED | Prospect.WAITS:
            return f"{noun} of {name} would be accepted: {sentence}. Nothing was requested (dry run)."
        case Prospect.REFUSED:
            return f"{noun} rejected: {sentence}." + (f" {remedy[0].upper()}{remedy[1:]}" if remedy else "")
        case Prospect.NOTHING:
            return f"Nothing was requested: {sentence}."


def _future(asked: RequestOutcome) -> str:
    sentence = asked.forecast.sentence
    match asked.forecast.prospect:
        case Prospect.ACCEPTED | Prospect.WAITS:
            return f"{'requested' if asked.is_written else 'would be accepted'}: {sentence}"
        case Prospect.REFUSED:
            return f"rejected: {sentence}"
        case Prospect.NOTHING:
            return f"nothing to do: {sentence}"


def show_below(screen: Screen, below: RunsBelow, *, as_json: bool) -> None:
    """Show the runs that follow a replay, in the order in which they can run."""
    if as_json:
        for key in below.keys:
            screen.record(
                {"type": "follows", "pipeline": key.pipeline, "schedule": key.schedule, "period": str(key.period)}
            )
        return
    screen.line(
        f"{counted(len(below.keys), 'run')} below {'follows' if len(below.keys) == 1 else 'follow'}, in this order:"
    )
    screen.table([(key.pipeline, str(key.period)) for key in below.keys])
    if below.is_cut:
        screen.line("and more, which are not shown")


def show_replay(screen: Screen, asked: list[RequestOutcome], *, as_json: bool) -> None:
    if as_json:
        for each in asked:
            screen.record({"type": "replay", **record_of(each)})
        return
    rows = [(str(each.key.period), _future(each)) for each in asked]
    screen.table(rows, styles=[STYLES[each.forecast.prospect] for each in asked])
    written = sum(each.is_written for each in asked)
    screen.line(f"{counted(written, 'rerun')} requested" if written else "nothing was requested")


def record_of(asked: RequestOutcome) -> dict[str, Json]:
    return {
        "pipeline": asked.key.pipeline,
        "schedule": asked.key.schedule,
        "period": str(asked.key.period),
        "asked": asked.is_written,
        "prospect": asked.forecast.prospect.value,
        "sentence": asked.forecast.sentence,
        "remedy": asked.forecast.remedy or None,
    }


asking_app = typer.Typer()

ASKING_EXIT_CODES = """\b
Exit codes:
  0  requested, and as things stand it will be done
  1  rejected, or there is nothing to do; no request was written
  2  the command, the settings or the store is wrong: a person must act
     (also if there is no such pipeline, run or dead letter)
  3  the store does not answer, or two requests collided: try again
"""

RERUN_HELP = f"""Request another attempt at one run.

For a run that has ended, or one that never started. A worker checks the manual rerun budget, the calendar, and \
whether any sensor changed since the last success. The command shows the result at once; a request that would be \
rejected is not written and raises no alert. An active run is rejected unless you add --supersede, which stops its \
job first.

\b
Examples:
  interlock rerun orders-daily 2026-03-03 --reason "export was corrected"
  interlock rerun orders-daily 2026-03-03 --supersede
  interlock rerun orders-daily 2026-03-03 --dry-run --json

{ASKING_EXIT_CODES}"""

REPLAY_HELP = f"""Request reruns over a range of periods, outside the budgets.

The periods are those that the schedule expects, or every day or hour if it expects none; excluded and future periods \
are left out. Runs that never started are created. At most 1,000 periods at a time. Pipelines that run after this one \
rerun within their budgets; with --downstream, outside them.

If the command is interrupted, `interlock replays list` shows which periods it requested. Continue after them: a \
period that is requested twice may run twice.

\b
Examples:
  interlock replay orders-daily 2026-03-01 2026-03-07 --dry-run
  interlock replay orders-daily 2026-03-01 2026-03-07 --note "new rates" --yes
  interlock replay orders-daily 2026-03-01 2026-03-07 --downstream --dry-run
  interlock replay clickstream-hourly 2026-03-03T06 2026-03-03T12 --yes --json

{ASKING_EXIT_CODES}"""

CANCEL_HELP = f"""Cancel a run: stop its job and do not retry it.

Late data does not reopen it. Its deadline stays watched unless --waive-sla. A manual rerun reopens it.

\b
Examples:
  interlock cancel orders-daily 2026-03-03 --reason "wrong export"
  interlock cancel orders-daily 2026-03-03 --reason "holiday" --waive-sla
  interlock cancel orders-daily 2026-03-03 --reason "wrong export" --dry-run

{ASKING_EXIT_CODES}"""

PAUSE_HELP = f"""Pause a pipeline: no new run or attempt starts.

Interlock still follows running jobs to their end and watches deadlines.

\b
Examples:
  interlock pause orders-daily --reason "database upgrade"
  interlock pause orders-daily --reason "database upgrade" --until 2h
  interlock pause orders-daily --reason "upgrade" --until 2026-03-04T06:00:00Z

{EXIT_CODES}"""

RESUME_HELP = f"""Resume a paused pipeline.

\b
Examples:
  interlock resume orders-daily
  interlock resume orders-daily --json
  interlock resume orders-daily --store sqlite:///interlock.db

{EXIT_CODES}"""

PeriodArgument = Annotated[str, typer.Argument(metavar="PERIOD", help="2026-03-03, 2026-03-03T07 or 2026-03-03T0730.")]
# Required too, but its absence is answered with the periods that there are.
AskedPeriodArgument = Annotated[
    str | None,
    typer.Argument(metavar="PERIOD", help="2026-03-03, 2026-03-03T07 or 2026-03-03T0730.", show_default=False),
]
Why = Annotated[str, typer.Option("--reason", help="Why; recorded, and shown in alerts.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="Show the result without making the request.")]


@asking_app.command(help=RERUN_HELP)
def rerun(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: AskedPeriodArgument = None,
    *,
    reason: Why = DEFAULT_REASON,
    supersede: Annotated[bool, typer.Option("--supersede", help="Replace an active run: stop its job first.")] = False,
    dry_run: Dry = False,
    as_who: AsWho = None,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        by = author_of(as_who)
        whom = RunSelector(pipeline=PipelineId(pipeline), schedule=schedule, by=by, is_dry=dry_run, as_json=as_json)
        if period is None:
            return await run_without_period(screen, at, whom, "rerun")
        wish = RerunSpec(reason=read_reason(reason), supersede=supersede)
        return await run_rerun(screen, at, whom, read_period(period), wish)

    on_store(context, store, work)


@asking_app.command(help=REPLAY_HELP)
def replay(
    context: typer.Context,
    pipeline: PipelineArgument,
    first: Annotated[str, typer.Argument(metavar="FROM", help="The first period.")],
    last: Annotated[str, typer.Argument(metavar="TO", help="The last period; a day means all of it.")],
    *,
    note: Annotated[str, typer.Option("--note", help="Why; kept with the requests.")] = "",
    downstream: Annotated[
        bool, typer.Option("--downstream", help="Let all runs below follow, outside their budgets.")
    ] = False,
    dry_run: Dry = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")] = False,
    as_who: AsWho = None,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        by = author_of(as_who)
        whom = RunSelector(pipeline=PipelineId(pipeline), schedule=schedule, by=by, is_dry=dry_run, as_json=as_json)
        span = (read_period(first), read_period(last))
        wish = RerunSpec(reason=REPLAY, note=note, is_followed=downstream)
        return await run_replay(screen, at, whom, span, wish=wish, consent=Consent.by_option(yes))

    on_store(context, store, work)


@asking_app.command(help=CANCEL_HELP)
def cancel(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: PeriodArgument,
    *,
    reason: Why,
    waive_sla: Annotated[bool, typer.Option("--waive-sla", help="Stop watching its deadline, too.")] = False,
    dry_run: Dry = False,
    as_who: AsWho = None,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        by = author_of(as_who)
        whom = RunSelector(pipeline=PipelineId(pipeline), schedule=schedule, by=by, is_dry=dry_run, as_json=as_json)
        return await run_cancel(screen, at, whom, read_period(period), reason=read_reason(reason), waive_sla=waive_sla)

    on_store(context, store, work)


@asking_app.command(help=PAUSE_HELP)
def pause(
    context: typer.Context,
    pipeline: PipelineArgument,
    *,
    reason: Why,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="2h, 7d, 2026-03-04 or 2026-03-04T06:00:00Z; else until resumed.")
    ] = None,
    as_who: AsWho = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        wish = PauseSpec(reason=read_reason(reason), until=until, by=author_of(as_who))
        return await run_pause(screen, at, PipelineId(pipeline), wish, as_json=as_json)

    on_store(context, store, work)


@asking_app.command(help=RESUME_HELP)
def resume(
    context: typer.Context,
    pipeline: PipelineArgument,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why; recorded.")] = DEFAULT_REASON,
    as_who: AsWho = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        wish = ResumeSpec(reason=read_reason(reason), by=author_of(as_who))
        return await run_resume(screen, at, PipelineId(pipeline), wish, as_json=as_json)

    on_store(context, store, work)
