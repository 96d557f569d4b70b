"""`interlock history`: every transition and attempt of one run."""

from worker.cli.asking import version_of
from worker.cli.console import Screen, counted, shown_time
from worker.cli.naming import chosen_schedule
from worker.cli.onstore import Exit, StoreAccess
from worker.cli.pipelines import say_unknown
from worker.core.instants import format_rfc3339
from worker.core.keys import RunKey
from worker.core.periods import Period
from worker.core.pipeline import PipelineId, ScheduleId
from worker.core.values import Json
from worker.showing.history import Moment, Source, load, tell
from worker.store.table import Tables

STYLES = {Source.EVENT: "", Source.JOB_LOG: "dim", Source.RERUN: "yellow", Source.RUN: "bold", Source.SLA: "cyan"}


async def run_history(
    screen: Screen, access: StoreAccess, pipeline: PipelineId, period: Period, *, schedule: str | None, as_json: bool
) -> int:
    async with access.tables() as tables:
        key = await _key(tables, pipeline, period, schedule)
        if key is None:
            return await say_unknown(screen, tables, pipeline)
        moments = tell(await load(tables, key, access.clock.now()))
    if as_json:
        for moment in moments:
            screen.record(record_of(key, moment))
    else:
        show_moments(screen, key, moments)
    return Exit.DONE if moments else Exit.PROBLEMS


async def _key(tables: Tables, pipeline: PipelineId, period: Period, schedule: str | None) -> RunKey | None:
    """A schedule that is named need not exist any more: what happened stays."""
    if schedule is not None:
        return RunKey(pipeline, ScheduleId(schedule), period)
    version = await version_of(tables, pipeline)
    return None if version is None else RunKey(pipeline, chosen_schedule(version.pipeline, None).id, period)


def show_moments(screen: Screen, key: RunKey, moments: list[Moment]) -> None:
    if not moments:
        screen.remark(f"nothing is recorded about {key}", style="red")
        screen.remark(f"    `interlock explain {key.pipeline} {key.period}` says why")
        return
    screen.line(str(key), style="bold")
    rows = [row_of(key, moment) for moment in moments]
    screen.table(rows, styles=[STYLES[moment.source] for moment in moments])
    screen.line(counted(len(moments), "record"))


def row_of(key: RunKey, moment: Moment) -> tuple[str, ...]:
    at = shown_time(moment.at) if moment.at else "time unknown"
    attempt = f"attempt {moment.attempt}" if moment.attempt else ""
    # Most messages name their run first; the heading has done so already.
    return at, moment.source.value, attempt, moment.what, moment.message.removeprefix(str(key)).lstrip(": ")


def record_of(key: RunKey, moment: Moment) -> dict[str, Json]:
    return {
        "type": "moment",
        "pipeline": key.pipeline,
        "schedule": key.schedule,
        "period": str(key.period),
        "at": format_rfc3339(moment.at) if moment.at else None,
        "source": moment.source.value,
        "what": moment.what,
        "attempt": moment.attempt,
        "message": moment.message,
    }
