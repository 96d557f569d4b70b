"""`interlock pause` and `resume`: stop new runs and attempts of a pipeline, and allow them again."""

from dataclasses import dataclass

from worker.cli.terminal.console import Screen
from worker.cli.terminal.pipeline_lookup import say_unknown
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.core.model.given_times import time_after
from worker.core.model.ids import PipelineId
from worker.core.model.values import Json
from worker.core.run.state import Pause
from worker.core.time.timestamps import format_rfc3339
from worker.operations.operator_actions import Requester
from worker.operations.pipelines.pausing import pause_pipeline, resume_pipeline
from worker.store.repos.pipelines import Pipelines


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseSpec:
    """PauseSpec says why, until when and by whom a pipeline is paused."""

    reason: str
    until: str | None
    by: Requester


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeSpec:
    """ResumeSpec says why and by whom a pipeline is resumed."""

    reason: str
    by: Requester


async def run_pause(
    screen: Screen, access: StoreAccess, pipeline: PipelineId, wish: PauseSpec, *, as_json: bool
) -> int:
    """Pause a pipeline; an existing pause gets the new reason and end."""
    now = access.clock.now()
    pause = Pause(wish.reason, time_after(wish.until, now) if wish.until else None)
    async with access.tables() as tables:
        if await Pipelines(tables).get(pipeline) is None:
            return await say_unknown(screen, tables, pipeline)
        before = await pause_pipeline(tables, pipeline, pause, wish.by, now)
    if as_json:
        screen.record(record_of("pause", pipeline, pause))
        return Exit.DONE
    if before is not None and not before.is_over(now):
        screen.remark(f"it was already paused: {before.reason}")
    screen.line(f"paused {pipeline} {_end(pause)}: {pause.reason}")
    screen.line("  No new run or attempt starts. Running jobs continue, and deadlines are still watched.")
    return Exit.DONE


async def run_resume(
    screen: Screen, access: StoreAccess, pipeline: PipelineId, wish: ResumeSpec, *, as_json: bool
) -> int:
    now = access.clock.now()
    async with access.tables() as tables:
        if await Pipelines(tables).get(pipeline) is None:
            return await say_unknown(screen, tables, pipeline)
        before = await resume_pipeline(tables, pipeline, wish.reason, wish.by, now)
    was_paused = before is not None and not before.is_over(now)
    if as_json:
        screen.record({**record_of("resume", pipeline, before), "wasPaused": was_paused})
    elif was_paused and before is not None:
        until = f" {_end(before)}" if before.until else ""
        screen.line(f"resumed {pipeline}, which was paused{until}: {before.reason}")
        screen.line("  Sensors and requests that arrived during the pause are processed now.")
    else:
        screen.line(f"{pipeline} is not paused, so nothing changed")
    return Exit.DONE


def record_of(kind: str, pipeline: PipelineId, pause: Pause | None) -> dict[str, Json]:
    until = pause.until if pause else None
    return {
        "type": kind,
        "pipeline": pipeline,
        "reason": pause.reason if pause else None,
        "until": format_rfc3339(until) if until else None,
    }


def _end(pause: Pause) -> str:
    return f"until {format_rfc3339(pause.until)}" if pause.until else "until it is resumed"
