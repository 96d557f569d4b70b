"""`interlock rerun`, `replay` and `cancel`: ask something of runs, and say what will become of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from worker.cli.commands.pipelines import say_unknown
from worker.cli.terminal.arguments import chosen_schedule
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.store_access import Exit, StoreAccess
from worker.cli.terminal.worker_presence import remark_if_nobody_works
from worker.config.versions import Unusable, Version
from worker.core.errors import ConfigError, Rejected
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.model.values import Json
from worker.core.run.forecast import Prospect
from worker.core.run.reruns import DATA_DRIFT, LATE_DATA, REPLAY
from worker.core.time.periods import Period
from worker.operations.explain.load import Looking
from worker.operations.runs.replay_range import is_due, replayed
from worker.operations.runs.requests import Asked, Asking, Wish
from worker.store.table import Tables

OUR_REASONS = frozenset({LATE_DATA, DATA_DRIFT, REPLAY})  # they decide which budget is charged
STYLES = {Prospect.ACCEPTED: "green", Prospect.WAITS: "yellow", Prospect.REFUSED: "red", Prospect.NOTHING: "red"}
GOOD = frozenset({Prospect.ACCEPTED, Prospect.WAITS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Whom:
    """Which runs are meant, and how to answer. `is_dry`: tell what would become of it, and ask nothing."""

    pipeline: PipelineId
    schedule: str | None
    is_dry: bool
    as_json: bool


async def run_rerun(screen: Screen, access: StoreAccess, whom: Whom, period: Period, wish: Wish) -> int:
    if wish.reason in OUR_REASONS:
        raise ConfigError(f"the reason {wish.reason!r} is the worker's own; say why in other words")

    async def ask(asking: Asking, version: Version) -> int:
        asked = await asking.rerun(_key(whom, version, period), version, wish)
        show_asked(screen, "rerun", asked, wish.reason, as_json=whom.as_json)
        if not whom.as_json and asked.is_first and asked.forecast.prospect in GOOD:
            remark_if_odd(screen, asked.key, chosen_schedule(version.pipeline, whom.schedule), access.clock.now())
        return exit_code([asked])

    return await _with_version(screen, access, whom, ask)


async def run_cancel(
    screen: Screen, access: StoreAccess, whom: Whom, period: Period, *, reason: str, waive_sla: bool
) -> int:
    async def ask(asking: Asking, version: Version) -> int:
        asked = await asking.cancel(_key(whom, version, period), version, reason, waive_sla=waive_sla)
        show_asked(screen, "cancel", asked, reason, as_json=whom.as_json)
        return Exit.WRONG if asked.is_first and asked.forecast.prospect not in GOOD else exit_code([asked])

    return await _with_version(screen, access, whom, ask)


async def run_replay(
    screen: Screen, access: StoreAccess, whom: Whom, span: tuple[Period, Period], *, note: str, consent: Consent
) -> int:
    """Ask for one rerun after another; those before a trouble stay asked for, and asking again is harmless."""

    async def ask(asking: Asking, version: Version) -> int:
        schedule = chosen_schedule(version.pipeline, whom.schedule)
        periods = replayed(schedule, *span, access.clock.now())
        count = counted(len(periods), "period")
        question = f"Run {count} of {whom.pipeline}/{schedule.id} again, from {periods[0]} to {periods[-1]}?"
        if not whom.is_dry and not consent.obtain(screen, question):
            screen.remark("nothing was asked for")
            return Exit.DONE
        keys = [RunKey(whom.pipeline, schedule.id, period) for period in periods]
        wish = Wish(reason=REPLAY, note=note)
        asked = [await asking.rerun(key, version, wish) for key in keys]
        show_replay(screen, asked, as_json=whom.as_json)
        return exit_code(asked)

    return await _with_version(screen, access, whom, ask)


async def _with_version(
    screen: Screen, access: StoreAccess, whom: Whom, ask: Callable[[Asking, Version], Awaitable[int]]
) -> int:
    async with access.tables() as tables:
        version = await version_of(tables, whom.pipeline)
        if version is None:
            return await say_unknown(screen, tables, whom.pipeline)
        code = await ask(Asking(tables, access.clock, is_rehearsed=whom.is_dry), version)
        if not whom.as_json and not whom.is_dry:
            await remark_if_nobody_works(screen, tables, access.clock.now())
        return code


async def version_of(tables: Tables, pipeline: PipelineId) -> Version | None:
    """Raises `Rejected` if the pipeline's configuration cannot be used."""
    version = await Looking(tables).version(pipeline)
    if isinstance(version, Unusable):
        raise Rejected(
            f"the configuration of {pipeline} cannot be used: {version.problems[0]}; correct its file and push it"
        )
    return version


def _key(whom: Whom, version: Version, period: Period) -> RunKey:
    return RunKey(whom.pipeline, chosen_schedule(version.pipeline, whom.schedule).id, period)


def remark_if_odd(screen: Screen, key: RunKey, schedule: Schedule, now: datetime) -> None:
    """A mistyped period becomes a run like any other, and a job runs on data that is not there."""
    if not is_due(schedule, key.period, now):
        says = f"`interlock explain {key.pipeline} {key.period}` says what it expects"
        expected = f"schedule {schedule.id} expects no run of {key.period}, or not yet"
        screen.remark(f"warning: {expected}; {says}", style="yellow")


def exit_code(asked: list[Asked]) -> Exit:
    return Exit.DONE if all(each.forecast.prospect in GOOD for each in asked) else Exit.PROBLEMS


# --- what is printed --------------------------------------------------------------------------------------------------


def show_asked(screen: Screen, what: str, asked: Asked, reason: str, *, as_json: bool) -> None:
    if as_json:
        screen.record({"type": what, **record_of(asked), "reason": reason})
        return
    made = f"asked for a {what} of {asked.key}" if asked.is_written else f"no {what} of {asked.key} was asked for"
    screen.line(f"{made}: {reason}" if asked.is_written else made)
    screen.line(f"  {_future(asked)}", STYLES[asked.forecast.prospect])
    if remedy := _remedy(asked):
        screen.line(f"  → {remedy}")
    if asked.replaced is not None and asked.is_written:
        before = asked.replaced
        screen.remark(f"it replaces one of {before.requested_at} ({before.reason}), which was not answered yet")


def _future(asked: Asked) -> str:
    verb = "will be" if asked.is_written else "would be"
    sentence = asked.forecast.sentence
    match asked.forecast.prospect:
        case Prospect.ACCEPTED:
            return f"{verb} accepted: {sentence}"
        case Prospect.WAITS:
            return f"{'waits' if asked.is_written else 'would wait'}: {sentence}"
        case Prospect.REFUSED:
            return f"{verb} refused: {sentence}"
        case Prospect.NOTHING:
            return f"there is nothing to do: {sentence}"


def _remedy(asked: Asked) -> str:
    """What helps, unless the sentence said so already."""
    remedy = asked.forecast.remedy
    return "" if remedy in asked.forecast.sentence else remedy


def show_replay(screen: Screen, asked: list[Asked], *, as_json: bool) -> None:
    if as_json:
        for each in asked:
            screen.record({"type": "replay", **record_of(each)})
        return
    rows = [(str(each.key.period), _future(each)) for each in asked]
    screen.table(rows, styles=[STYLES[each.forecast.prospect] for each in asked])
    written = sum(each.is_written for each in asked)
    screen.line(f"asked for {counted(written, 'rerun')}" if written else "nothing was asked for")


def record_of(asked: Asked) -> dict[str, Json]:
    return {
        "pipeline": asked.key.pipeline,
        "schedule": asked.key.schedule,
        "period": str(asked.key.period),
        "asked": asked.is_written,
        "prospect": asked.forecast.prospect.value,
        "sentence": asked.forecast.sentence,
        "remedy": asked.forecast.remedy or None,
    }
