"""Report a pipeline that the store does not have, with a similar name if there is one."""

from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_session import Exit, show_failure
from worker.core.model.ids import PipelineId
from worker.operations.pipelines.lookup import suggestion
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Tables


async def say_unknown(screen: Screen, tables: Tables, pipeline: PipelineId) -> int:
    hint = await suggestion(tables, pipeline) or "`interlock pipelines list` shows what there is"
    show_failure(screen, f"there is no pipeline {pipeline} in the store", hint)
    return Exit.WRONG


async def warn_if_unknown(screen: Screen, tables: Tables, pipeline: PipelineId, *, otherwise: str) -> None:
    """Warn if the store has no such pipeline, because the name may be mistyped.

    It is only a warning: rows about a pipeline may be written before it is deployed and after it is removed.
    `otherwise` is the hint if no pipeline has a similar name.
    """
    if await Pipelines(tables).get(pipeline) is None:
        hint = await suggestion(tables, pipeline) or otherwise
        screen.remark(f"warning: there is no pipeline {pipeline} in the store; {hint}", style="yellow")
