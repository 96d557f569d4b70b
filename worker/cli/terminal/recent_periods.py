"""Which run a command without a period means: it shows one, or lists the latest to choose from."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_session import Exit, show_failure
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.run.state import status_word
from worker.core.time.periods import Period
from worker.store.repos.runs import Runs, UnreadableRow
from worker.store.table import Tables

if TYPE_CHECKING:
    from worker.operations.explain.default_period import DefaultRun

SHOWN_MAX: Final = 3  # of each schedule
OTHERS_NAMED_MAX: Final = 5


async def say_period_missing(
    screen: Screen, tables: Tables, command: str, pipeline: Pipeline, schedules: Sequence[Schedule]
) -> int:
    """Show an error that lists the last runs of each schedule, and return its exit code.

    A command that changes a run chooses none by itself: the newest run need not be the one that is meant.
    """
    rows = [row for schedule in schedules for row in await _latest(tables, pipeline, schedule)]
    what = f"`interlock {command}` needs the period of the run"
    if not rows:
        says = f"`interlock explain {pipeline.id}` says what it waits for"
        show_failure(screen, what, f"{pipeline.id} has no run yet; {says}")
        return Exit.WRONG
    newest, period, _ = rows[0]
    name = f" --schedule {newest}" if len(pipeline.schedules) > 1 else ""
    show_failure(screen, what, f"for example: interlock {command} {pipeline.id} {period}{name}")
    screen.remark(f"    the last runs of {pipeline.id}:")
    for schedule, period, status in rows:
        of = f"  {schedule}" if len(schedules) > 1 else ""
        screen.remark(f"      {period}  {status}{of}")
    return Exit.WRONG


async def _latest(tables: Tables, pipeline: Pipeline, schedule: Schedule) -> list[tuple[str, str, str]]:
    runs = await Runs(tables).of_schedule(pipeline.id, schedule.id, limit=SHOWN_MAX)
    readable = [run for run in runs if not isinstance(run, UnreadableRow)]  # `interlock status` reports the others
    return [(schedule.id, str(run.key.period), status_word(run)) for run in readable]


async def choose_period(
    tables: Tables, pipeline: Pipeline, schedule: Schedule, now: datetime, say: Callable[[str], None]
) -> Period:
    """Return the period that a command shows if none is given, and say so."""
    from worker.operations.explain.default_period import DefaultRuns  # noqa: PLC0415  only commands that show a run

    default = await DefaultRuns(tables).of_schedule(pipeline, schedule, now)
    say(why_shown(default))
    return default.period


def why_shown(present: "DefaultRun") -> str:
    """Return which run is shown if the user gave no period."""
    if not present.is_active:
        return f"No period given and no run is active; showing the last that ran or was expected, {present.period}."
    if not present.others:
        return f"No period given; showing the active run, {present.period}."
    number = len(present.others)
    named = ", ".join(str(period) for period in present.others[:OTHERS_NAMED_MAX])
    more = f" and {number - OTHERS_NAMED_MAX:,} more" if number > OTHERS_NAMED_MAX else ""
    return f"No period given; showing the newest of {number + 1:,} active runs, {present.period}; also {named}{more}."
