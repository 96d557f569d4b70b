"""`interlock plan`: list expected runs, their times and deadlines, and excluded runs with the reason."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import groupby, islice
from pathlib import Path
from typing import Annotated, Final

import typer

from worker.cli.commands.validate import place_and_message
from worker.cli.plan.archetypes import archetype_changes, show_archetype_changes
from worker.cli.plan.view import block_row, change_record, change_row
from worker.cli.plan.waits import FileWaits
from worker.cli.terminal.arguments import AsNdjson, CalendarsOption, PathsArgument, today
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.files import Sources, read_files
from worker.cli.terminal.store_access import StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.config.problems import Problem
from worker.config.scalars import read_date
from worker.config.suggestions import suggest
from worker.core.model.pipeline import Pipeline, PipelineId, Schedule
from worker.core.schedule.agenda import Block, PlanEntry, Span, agenda, by_day, unclocked
from worker.core.schedule.agenda_record import agenda_record
from worker.core.schedule.plan_changes import DifferenceKind, RunDifference, changes
from worker.operations.pipelines.plan_texts import counts_text

DAYS_MAX: Final = 366
FIRST_DAY: Final = date(1970, 1, 2)
LAST_DAY: Final = date(2999, 12, 31)
LINES_MAX = 2_000  # nobody reads a longer plan; --json gives all of it
CHANGES_SHOWN_MAX = 10  # of one schedule, unless --all is given
PROBLEMS_SHOWN_MAX = 5
STATES_MAX: Final = 500  # runs whose upstream runs are read from the store

CHANGE_STYLES = {
    DifferenceKind.ADDED: "green",
    DifferenceKind.REMOVED: "red",
    DifferenceKind.MOVED: "yellow",
    DifferenceKind.DEADLINE: "yellow",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """PlanRequest says what to plan and how much of it to show; `pipeline` None means all pipelines."""

    span: Span
    pipeline: str | None = None
    show_all: bool = False
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Sound:
    """Sound holds the valid pipelines; `is_whole` says whether every file could be used.

    `is_unknown` means that no file has the named pipeline, and that no file was left out that might have it.
    """

    pipelines: list[Pipeline]
    is_whole: bool
    is_unknown: bool = False
    known: Mapping[PipelineId, Pipeline] = field(default_factory=dict[PipelineId, Pipeline])  # with those not chosen


@dataclass(slots=True)
class Totals:
    """Totals counts entries as they are iterated, so that none has to be kept."""

    runs: int = 0
    excluded: int = 0
    notes: int = 0
    pipelines: set[str] = field(default_factory=set[str])

    def watch(self, entries: Iterable[PlanEntry]) -> Iterator[PlanEntry]:
        for entry in entries:
            self.pipelines.add(entry.pipeline)
            self.notes += entry.run.note is not None
            self.runs += entry.run.excluded is None
            self.excluded += entry.run.excluded is not None
            yield entry


def run_plan(screen: Screen, sources: Sources, request: PlanRequest) -> int:
    """Print the plan and return the exit code.

    The code is 1 if some file could not be used or there is nothing to plan, and 2 if no file has the named pipeline.
    """
    sound = read_pipelines(screen, sources, request)
    return show_plan(screen, sound, request, FileWaits(sound.known))


async def run_plan_with_states(screen: Screen, access: StoreAccess, sources: Sources, request: PlanRequest) -> int:
    """Print the plan with the state of what each run waits for, and return the exit code of `run_plan`."""
    from worker.cli.plan.states import read_states  # noqa: PLC0415  a plan from files alone needs no store

    sound = read_pipelines(screen, sources, request)
    dependent = (each for each in agenda(sound.pipelines, request.span) if each.schedule.after)
    entries = list(islice((each for each in dependent if each.run.excluded is None), STATES_MAX + 1))
    async with access.tables() as tables:
        states = await read_states(tables, entries[:STATES_MAX], access.clock.now())
    if len(entries) > STATES_MAX:
        first = f"the states of the first {STATES_MAX} runs are shown"
        screen.remark(f"{first}; narrow with --pipeline or --days", style="yellow")
    return show_plan(screen, sound, request, FileWaits(sound.known, states))


def show_plan(screen: Screen, sound: Sound, request: PlanRequest, waits: FileWaits) -> int:
    if sound.is_unknown:
        return Exit.WRONG
    totals = Totals()
    entries = totals.watch(agenda(sound.pipelines, request.span))
    if request.as_json:
        show_records(screen, entries, totals, request.span, waits)
    else:
        show_days(screen, entries, waits, show_all=request.show_all)
        show_totals(screen, sound.pipelines, totals, request.span)
    return 0 if sound.is_whole and sound.pipelines else 1


def run_diff(screen: Screen, old: Sources, new: Sources, request: PlanRequest) -> int:
    """Print what changes from `old` to `new` and return the exit code.

    As for `diff`, the code is 0 if nothing changes and 1 if something does. It is 2 if a file has a problem or there
    are no pipelines to compare.
    """
    before, after = read_pipelines(screen, old, request), read_pipelines(screen, new, request)
    if not (before.is_whole and after.is_whole and (before.pipelines or after.pipelines)):
        return 2
    counts = Counter[DifferenceKind]()
    by_archetype = list(archetype_changes(before.pipelines, after.pipelines))
    found = _counted(changes(before.pipelines, after.pipelines, request.span), counts)
    if request.as_json:
        for change in found:
            screen.record({"type": "change", **change_record(change)})
        for each in by_archetype:
            screen.record({"type": "archetypeChange", **each.record})
        numbers = {kind.value: counts[kind] for kind in DifferenceKind}
        screen.record({"type": "summary", **_span_record(request.span), **numbers})
    else:
        show_archetype_changes(screen, by_archetype, show_all=request.show_all)
        show_changes(screen, found, show_all=request.show_all)
        screen.line(f"{request.span.first} to {request.span.last}: {counts_text(counts)}")
    return 1 if counts or any(each.parts for each in by_archetype) else 0


def read_pipelines(screen: Screen, sources: Sources, request: PlanRequest) -> Sound:
    """Load the valid pipelines, and report the invalid files on standard error."""
    found = read_files(screen, sources)
    remark_errors(screen, found.errors)
    chosen = [pipeline for pipeline in found.pipelines if request.pipeline in {None, pipeline.id}]
    if not chosen and request.pipeline:
        where = ", ".join(map(str, sources.paths))
        screen.remark(f"no valid pipeline in {where} is called {request.pipeline}", style="yellow")
        if hint := suggest(request.pipeline, [pipeline.id for pipeline in found.pipelines]):
            screen.remark(f"    {hint}")
    is_whole = bool(found.files) and not found.errors
    is_unknown = is_whole and not chosen and request.pipeline is not None
    known = {pipeline.id: pipeline for pipeline in found.pipelines}
    return Sound(chosen, is_whole=is_whole, is_unknown=is_unknown, known=known)


def remark_errors(screen: Screen, errors: Sequence[Problem]) -> None:
    for problem in errors[:PROBLEMS_SHOWN_MAX]:
        screen.remark(place_and_message(problem), style="red")
    if errors:
        total = counted(len(errors), "error")
        screen.remark(f"{total}; those files are left out. `interlock validate` shows every problem", style="red")


def show_records(screen: Screen, entries: Iterable[PlanEntry], totals: Totals, span: Span, waits: FileWaits) -> None:
    for entry in entries:
        screen.record({"type": "run", **agenda_record(entry), **waits.record(entry)})
    numbers = {"runs": totals.runs, "excluded": totals.excluded, "pipelines": len(totals.pipelines)}
    screen.record({"type": "summary", **_span_record(span), **numbers})


def show_days(screen: Screen, entries: Iterable[PlanEntry], waits: FileWaits, *, show_all: bool) -> None:
    """Show a heading for each day and a line for each run or busy schedule.

    Lines beyond `LINES_MAX` are only counted.
    """
    shown = hidden = 0
    for day, blocks in by_day(entries, fold=not show_all):
        fitting = blocks[: max(0, LINES_MAX - shown)]
        shown, hidden = shown + len(fitting), hidden + len(blocks) - len(fitting)
        if fitting:
            screen.line(f"{day:%A} {day}", style="bold")
            rows = [block_row(block, waits.sentences(block.first)) for block in fitting]
            screen.table(rows, styles=[_style(block) for block in fitting])
            screen.line()
    if hidden:
        screen.line(f"... {hidden:,} more lines; narrow with --pipeline or --days, or take --json\n", style="yellow")


def show_totals(screen: Screen, pipelines: Sequence[Pipeline], totals: Totals, span: Span) -> None:
    for pipeline, schedule in unclocked(pipelines):
        screen.line(f"{pipeline}/{schedule.id}: {_why_unclocked(schedule)}", style="yellow")
    dry = sorted(pipeline.id for pipeline in pipelines if pipeline.dry_run)
    if dry:
        screen.line(f"Dry run, will start nothing: {', '.join(dry)}", style="yellow")
    parts = [f"{counted(totals.runs, 'run')} of {counted(len(totals.pipelines), 'pipeline')}"]
    parts += [f"{totals.excluded:,} excluded"] if totals.excluded else []
    parts += [f"{totals.notes:,} touched by a clock change"] if totals.notes else []
    screen.line(f"{span.first} to {span.last}: {', '.join(parts)}", style="green")


def show_changes(screen: Screen, found: Iterable[RunDifference], *, show_all: bool) -> None:
    """Show changes by schedule; without `show_all`, only the first changes of each schedule."""
    for _, group in groupby(found, key=lambda change: change.entry.name):
        theirs = list(group)
        listed = theirs if show_all else theirs[:CHANGES_SHOWN_MAX]
        screen.table([change_row(change) for change in listed], styles=[CHANGE_STYLES[one.kind] for one in listed])
        if len(listed) < len(theirs):
            rest = counted(len(theirs) - len(listed), "more change")
            screen.line(f"  ... {rest} of this schedule; --all lists them", style="dim")
        screen.line()


def _counted(found: Iterable[RunDifference], counts: Counter[DifferenceKind]) -> Iterator[RunDifference]:
    for change in found:
        counts[change.kind] += 1
        yield change


def _style(block: Block) -> str:
    if block.first.run.excluded is not None:
        return "dim"
    return "yellow" if block.notes else ""


def _span_record(span: Span) -> dict[str, str]:
    return {"from": span.first.isoformat(), "to": span.last.isoformat()}


def _why_unclocked(schedule: Schedule) -> str:
    if schedule.trigger is None and schedule.after:
        return f"starts after {', '.join(map(str, schedule.after))}; without a deadline, nothing reports a missing run"
    if schedule.trigger is None:
        return "nothing starts it, and no run is expected"
    key = schedule.trigger.rule.key
    return f"starts by its trigger on `{key}`; without a deadline, nothing reports a missing sensor"


plan_app = typer.Typer()

PLAN_HELP = """List the runs that pipeline files expect, or compare two sets of files.

Nothing is started or stored. A busy schedule is one line a day unless --all. A run that waits for other pipelines \
names their periods; with --states, also how far they are in the store. With --against, shows instead what \
changes from the files in OLD to those in PATH: runs added, removed or moved, deadlines that change, and what a \
changed archetype does to each pipeline that extends it.

\b
Examples:
  interlock plan pipelines/
  interlock plan pipelines/ --from 2027-03-22 --days 7 --pipeline orders-daily
  interlock plan pipelines/ --json | jq 'select(.excluded)'
  interlock plan pipelines/ --days 1 --states
  interlock plan --against deployed/ pipelines/

\b
Exit codes:
  0  planned; with --against: nothing changes
  1  files with problems or nothing to plan; with --against: something changes
  2  the command itself was wrong; with --against: some file has a problem
     (also if there is no such pipeline)
"""


@plan_app.command(help=PLAN_HELP)
def plan(
    context: typer.Context,
    paths: PathsArgument,
    *,
    start: Annotated[str | None, typer.Option("--from", metavar="DATE", help="First day; today if absent.")] = None,
    days: Annotated[int, typer.Option(metavar="N", min=1, max=DAYS_MAX, help="How many days.")] = 14,
    pipeline: Annotated[str | None, typer.Option(metavar="ID", help="Only this pipeline.")] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="OLD", exists=True, help="Show the difference from these files to PATH.")
    ] = None,
    calendars: CalendarsOption = None,
    states: Annotated[
        bool, typer.Option("--states", help="Read the store: how far the runs are that each run waits for.")
    ] = False,
    store: StoreUrl = None,
    show_all: Annotated[bool, typer.Option("--all", help="Every run on its own line, however many.")] = False,
    as_json: AsNdjson = False,
) -> None:
    now = today(context)
    span = Span(first=_first_day(start) if start else now, days=days)
    request = PlanRequest(span=span, pipeline=pipeline, show_all=show_all, as_json=as_json)
    new = Sources(paths=paths, calendars=calendars, today=now)
    if states and against is not None:
        raise typer.BadParameter("a comparison of files has no states", param_hint="--states")
    if states:
        on_store(context, store, lambda screen, access: run_plan_with_states(screen, access, new, request))
    if against is None:
        raise typer.Exit(run_plan(Screen(), new, request))
    raise typer.Exit(run_diff(Screen(), replace(new, paths=[against]), new, request))


def _first_day(text: str) -> date:
    day = read_date(text)
    if day is None:
        raise typer.BadParameter(f"{text!r} is not a date; write YYYY-MM-DD", param_hint="--from")
    if not FIRST_DAY <= day <= LAST_DAY:
        raise typer.BadParameter(f"{day} is not between {FIRST_DAY} and {LAST_DAY}", param_hint="--from")
    return day
