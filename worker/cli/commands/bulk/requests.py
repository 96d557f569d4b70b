"""`interlock runs rerun|cancel`: request a change of many runs, after a preview and a confirmation."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from worker.cli.commands.bulk.key_lines import read_keys
from worker.cli.commands.runs.filters import (
    DeadlineWord,
    ErrorPrefix,
    Outcomes,
    Owner,
    PipelineGlob,
    States,
    Until,
    bad_filter_is_misuse,
    filter_of,
    say_if_unknown,
)
from worker.cli.terminal.arguments import read_reason
from worker.cli.terminal.authors import AsWho, author_of
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.progress import progress_bar
from worker.cli.terminal.store_access import AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.cli.terminal.worker_presence import warn_if_no_live_worker
from worker.core.errors import ConfigError, RetryLater
from worker.core.model.run_names import shown_key
from worker.core.model.values import Json
from worker.core.run.reruns import DATA_DRIFT, LATE_DATA, REPLAY
from worker.operations.bulk.execution import BulkRequests, BulkSpec, RunForecast
from worker.operations.bulk.selection import RunSelection, fixed_filter, select_by_filter, select_keys
from worker.operations.bulk.start import command_of, start_bulk
from worker.operations.operator_actions import Requester
from worker.operations.runs.run_filter import RunFilter
from worker.runtime.ids import random_id
from worker.store.repos.bulk_operations import BulkAction, BulkOperation, BulkOperations, BulkResult, BulkRunResult
from worker.store.table import Tables

OUR_REASONS = frozenset({LATE_DATA, DATA_DRIFT, REPLAY})  # reserved: the reason decides which budget is charged
SHOWN_MAX = 20  # runs of a preview, and reasons of a rejection, on a terminal
NOUNS = {BulkAction.RERUN: "rerun", BulkAction.CANCEL: "cancellation"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkCommand:
    """BulkCommand holds what the user asked for. `keys` is true if the runs are on standard input."""

    wanted: BulkSpec
    by: Requester
    runs: RunFilter
    consent: Consent
    is_dry: bool
    as_json: bool


async def run_bulk(screen: Screen, access: StoreAccess, command: BulkCommand) -> int:
    """Preview, confirm and carry out a bulk operation, or continue the same command's interrupted one."""
    async with access.tables() as tables:
        by_keys = _reads_keys(command.runs)
        given = select_keys(read_keys(sys.stdin)) if by_keys else None
        selects = given.digest if given else command.runs.canonical
        name = command_of(command.wanted, command.by, selects)
        interrupted = None if command.is_dry else await BulkOperations(tables).unfinished(name)
        if interrupted is not None:
            return await _continue(screen, access, tables, interrupted, command)
        selection = given or await _selected(tables, access, command)
        if not selection.runs and (code := await say_if_unknown(screen, tables, command.runs)) is not None:
            return code
        requests = BulkRequests(tables, access.clock, command.by)
        forecasts = await requests.preview(selection.runs, command.wanted)
        show_preview(screen, forecasts, selection, command)
        accepted = sum(each.is_accepted for each in forecasts)
        if command.is_dry or not accepted:
            return Exit.DONE if accepted else Exit.PROBLEMS
        noun = NOUNS[command.wanted.action]
        if not command.consent.obtain(screen, f"Request {counted(accepted, noun)}?"):
            screen.remark("nothing was requested")
            return Exit.DONE
        operation = await start_bulk(
            tables, access.clock, command.by, command.wanted, selection, command=name, bulk_id=random_id()
        )
        return await _carry_out(screen, access, tables, operation, command)


async def resume_bulk(screen: Screen, access: StoreAccess, bulk_id: str, command: BulkCommand) -> int:
    async with access.tables() as tables:
        operation = await BulkOperations(tables).load(bulk_id)
        if operation is None or operation.action is not command.wanted.action:
            hint = "its id was printed when it started; bulk operations are kept for 7 days"
            raise ConfigError(f"there is no bulk {command.wanted.action} {bulk_id[:40]!r}; {hint}")
        return await _continue(screen, access, tables, operation, command)


async def _selected(tables: Tables, access: StoreAccess, command: BulkCommand) -> RunSelection:
    now = access.clock.now()
    return await select_by_filter(tables, fixed_filter(command.runs, command.wanted.action, now), now)


async def _continue(
    screen: Screen, access: StoreAccess, tables: Tables, operation: BulkOperation, command: BulkCommand
) -> int:
    done = await BulkOperations(tables).results(operation.id)
    left = len(operation.runs) - len(done)
    about = f"bulk {operation.action} {operation.id} of {operation.by} ({operation.reason})"
    if left and not command.consent.obtain(screen, f"Continue {about}: {left:,} of {len(operation.runs):,} runs left?"):
        screen.remark("nothing was requested")
        return Exit.DONE
    return await _carry_out(screen, access, tables, operation, command)


async def _carry_out(
    screen: Screen, access: StoreAccess, tables: Tables, operation: BulkOperation, command: BulkCommand
) -> int:
    resume = f"interlock runs {operation.action} --resume {operation.id} --yes"
    if command.as_json:
        screen.record({"type": "bulk", "id": operation.id, "action": operation.action, "runs": len(operation.runs)})
        screen.flush()
    else:
        screen.remark(f"bulk {operation.action} {operation.id}; if it is interrupted: {resume}")
    requests = BulkRequests(tables, access.clock, Requester(name=operation.by, via=operation.via))
    with progress_bar(screen, f"{operation.action} requests", len(operation.runs)) as step:

        def tell(result: BulkRunResult) -> None:
            step()
            if command.as_json:
                screen.record(result_record(operation, result))

        try:
            results = await requests.execute(operation, tell)
        except RetryLater as error:
            raise RetryLater(f"{error}; what was requested stays; continue with `{resume}`") from error
    show_results(screen, operation, results, as_json=command.as_json)
    if not command.as_json:
        await warn_if_no_live_worker(screen, tables, access.clock.now())
    return Exit.DONE if all(each.result is BulkResult.REQUESTED for each in results) else Exit.PROBLEMS


def _reads_keys(runs: RunFilter) -> bool:
    """Return whether the runs come from standard input. Raises `ConfigError` if nothing selects any."""
    if runs != RunFilter():
        return False
    if sys.stdin.isatty():
        raise ConfigError("no runs are selected; add a filter such as --state failed --since 1d, or pipe keys in")
    return True


# --- output -----------------------------------------------------------------------------------------------------------


def show_preview(
    screen: Screen, forecasts: Sequence[RunForecast], selection: RunSelection, command: BulkCommand
) -> None:
    accepted = [each for each in forecasts if each.is_accepted]
    if command.as_json:
        if command.is_dry:
            for each in forecasts:
                screen.record(_forecast_record(each, command.wanted))
            counts: dict[str, Json] = {"count": len(forecasts), "accepted": len(accepted)}
            screen.record({"type": "end", **counts, "complete": not selection.left_out})
    else:
        rows = [(shown_key(each.key), each.forecast.sentence) for each in accepted[:SHOWN_MAX]]
        screen.table(rows, styles=["green"] * len(rows))
        if len(accepted) > SHOWN_MAX:
            screen.line(f"  … and {len(accepted) - SHOWN_MAX:,} more")
        _show_reasons(screen, [each.forecast.sentence for each in forecasts if not each.is_accepted])
        total = f"{counted(len(forecasts), 'run')} selected"
        screen.line(f"{total}: {len(accepted):,} would be accepted, {len(forecasts) - len(accepted):,} rejected")
    if selection.left_out:
        screen.remark(f"{selection.left_out}; repeat the command for the rest", style="yellow")


def _show_reasons(screen: Screen, sentences: Sequence[str]) -> None:
    reasons = Counter(sentences).most_common()
    rows = [(counted(number, "run"), f"rejected: {sentence}") for sentence, number in reasons[:SHOWN_MAX]]
    screen.table(rows, styles=["red"] * len(rows))
    if len(reasons) > SHOWN_MAX:
        screen.line(f"  … and {len(reasons) - SHOWN_MAX:,} other reasons")


def show_results(screen: Screen, operation: BulkOperation, results: Sequence[BulkRunResult], *, as_json: bool) -> None:
    requested = sum(each.result is BulkResult.REQUESTED for each in results)
    if as_json:
        screen.record({"type": "end", "count": len(results), "requested": requested, "complete": True})
        return
    _show_reasons(screen, [each.sentence for each in results if each.result is BulkResult.REJECTED])
    noun = NOUNS[operation.action]
    screen.line(f"{counted(requested, noun)} requested, {len(results) - requested:,} rejected (bulk {operation.id})")


def _forecast_record(each: RunForecast, wanted: BulkSpec) -> dict[str, Json]:
    return {
        "type": wanted.action.value,
        "pipeline": each.key.pipeline,
        "schedule": each.key.schedule,
        "period": str(each.key.period),
        "prospect": each.forecast.prospect.value,
        "sentence": each.forecast.sentence,
        "remedy": each.forecast.remedy or None,
    }


def result_record(operation: BulkOperation, result: BulkRunResult) -> dict[str, Json]:
    return {
        "type": operation.action.value,
        "bulk": operation.id,
        "pipeline": result.key.pipeline,
        "schedule": result.key.schedule,
        "period": str(result.key.period),
        "result": result.result.value,
        "sentence": result.sentence or None,
    }


# --- commands ---------------------------------------------------------------------------------------------------------

bulk_app = typer.Typer()

BULK_EXIT_CODES = """\b
Exit codes:
  0  requested for every selected run, or previewed with --dry-run
  1  some or all were rejected; the output says why
  2  the command, the settings or the store is wrong: a person must act
     (also if there is no such pipeline, run or dead letter)
  3  the store does not answer: run the command again, and it continues
"""

_HOW = """Select runs with filters, or pipe keys in: a line `PIPELINE SCHEDULE PERIOD`, or a record of `runs list \
--json`. The command first shows what would be accepted and what rejected, and asks. It requests at most 1,000 runs, \
20 a second. If it is interrupted, run it again: it continues, and requests each run once."""

RERUN_HELP = f"""Request another attempt at many runs.

{_HOW}

\b
Examples:
  interlock runs rerun --state failed --since 1d --reason "database is back"
  interlock runs rerun --error "no route" --reason "network" --dry-run
  interlock runs rerun --reason "corrected" --yes < keys.txt

{BULK_EXIT_CODES}"""

CANCEL_HELP = f"""Cancel many runs: stop their jobs and do not retry them.

{_HOW}

\b
Examples:
  interlock runs cancel --state waiting --owner finance --reason "no data"
  interlock runs cancel --pipeline "orders-*" --reason "upgrade" --dry-run
  interlock runs cancel --resume 4f1c0d2a9b7e6c53 --yes

{BULK_EXIT_CODES}"""

Since = Annotated[str, typer.Option("--since", metavar="TIME", help="Only runs that ended since this time or age.")]
Why = Annotated[str, typer.Option("--reason", help="Why; recorded, and shown in alerts. Required.", show_default=False)]
Dry = Annotated[bool, typer.Option("--dry-run", help="Show the result without making requests.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")]
Resume = Annotated[str | None, typer.Option("--resume", metavar="ID", help="Continue an interrupted bulk operation.")]


@bulk_app.command("rerun", help=RERUN_HELP)
def rerun_runs(
    context: typer.Context,
    *,
    reason: Why = "",
    state: States = None,
    outcome: Outcomes = None,
    pipeline: PipelineGlob = "",
    owner: Owner = "",
    since: Since = "",
    until: Until = "",
    error: ErrorPrefix = "",
    deadline: DeadlineWord = "",
    supersede: Annotated[bool, typer.Option("--supersede", help="Replace active runs: stop their jobs first.")] = False,
    as_who: AsWho = None,
    resume: Resume = None,
    yes: Yes = False,
    dry_run: Dry = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    runs = filter_of(
        state, outcome, pipeline=pipeline, owner=owner, since=since, until=until, error=error, deadline=deadline
    )
    wanted = BulkSpec(action=BulkAction.RERUN, reason=reason, supersede=supersede)
    _start(context, store, resume, _Options(wanted, runs, as_who, yes=yes, is_dry=dry_run, as_json=as_json))


@bulk_app.command("cancel", help=CANCEL_HELP)
def cancel_runs(
    context: typer.Context,
    *,
    reason: Why = "",
    state: States = None,
    outcome: Outcomes = None,
    pipeline: PipelineGlob = "",
    owner: Owner = "",
    since: Since = "",
    until: Until = "",
    error: ErrorPrefix = "",
    deadline: DeadlineWord = "",
    waive_sla: Annotated[bool, typer.Option("--waive-sla", help="Stop watching their deadlines, too.")] = False,
    as_who: AsWho = None,
    resume: Resume = None,
    yes: Yes = False,
    dry_run: Dry = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    runs = filter_of(
        state, outcome, pipeline=pipeline, owner=owner, since=since, until=until, error=error, deadline=deadline
    )
    wanted = BulkSpec(action=BulkAction.CANCEL, reason=reason, waive_sla=waive_sla)
    _start(context, store, resume, _Options(wanted, runs, as_who, yes=yes, is_dry=dry_run, as_json=as_json))


@dataclass(frozen=True, slots=True)
class _Options:
    wanted: BulkSpec
    runs: RunFilter
    as_who: str | None
    yes: bool
    is_dry: bool
    as_json: bool


def _start(context: typer.Context, store: str | None, resume: str | None, options: _Options) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        # A resumed operation keeps its own reason.
        if resume is None and read_reason(options.wanted.reason) in OUR_REASONS:
            raise ConfigError(f"the reason {options.wanted.reason!r} is the worker's own; say why in other words")
        command = BulkCommand(
            wanted=options.wanted,
            by=author_of(options.as_who),
            runs=options.runs,
            consent=Consent.by_option(options.yes),
            is_dry=options.is_dry,
            as_json=options.as_json,
        )
        if resume is not None:
            return await resume_bulk(screen, at, resume, command)
        with bad_filter_is_misuse():
            return await run_bulk(screen, at, command)

    on_store(context, store, work)
