"""Finding the pipeline that a person named, and saying which one may have been meant if there is none."""

from typing import Final

from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_access import Exit, show_failure
from worker.config.versions import PipelineVersions, Unusable, Version
from worker.core.errors import Rejected
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.store.repos.pipelines import Pipelines, StoredConfig
from worker.store.table import Tables

NAMES_COMPARED_MAX: Final = 1_000  # of the store's own list, which is read in pages: a slip must not read all of it


async def version_of(tables: Tables, pipeline: PipelineId) -> Version | None:
    """Raises `Rejected` if the pipeline's configuration cannot be used."""
    configs = PipelineVersions(tables)
    version = await configs.current(pipeline) or await configs.deployed(pipeline)
    if isinstance(version, Unusable):
        raise Rejected(
            f"the configuration of {pipeline} cannot be used: {version.problems[0]}; correct its file and push it"
        )
    return version


def pipeline_in(stored: StoredConfig) -> Pipeline | None:
    """Read a configuration leniently, because others deploy, too; None: it cannot be understood."""
    from worker.config.load import load_text  # noqa: PLC0415  it takes longer than a command that needs no pipeline

    return load_text(stored.text or "", file=f"stored/{stored.pipeline}", lenient=True).pipeline


async def say_unknown(screen: Screen, tables: Tables, pipeline: PipelineId) -> int:
    hint = await suggestion(tables, pipeline) or "`interlock pipelines list` shows what there is"
    show_failure(screen, f"there is no pipeline {pipeline} in the store", hint)
    return Exit.WRONG


async def warn_if_unknown(screen: Screen, tables: Tables, pipeline: PipelineId, *, otherwise: str) -> None:
    """What is about a pipeline may come before it and outlive it; a mistyped name must not pass in silence.

    `otherwise` is what to say where no pipeline has a name like it.
    """
    if await Pipelines(tables).get(pipeline) is None:
        hint = await suggestion(tables, pipeline) or otherwise
        screen.remark(f"warning: there is no pipeline {pipeline} in the store; {hint}", style="yellow")


async def suggestion(tables: Tables, pipeline: PipelineId) -> str:
    """`did you mean …?`, or nothing if none of the first pipelines has a name like it."""
    from worker.config.problems import suggest  # noqa: PLC0415  for slips alone

    names: list[str] = []
    async for stored in Pipelines(tables).list():
        names.append(stored.pipeline)
        if len(names) == NAMES_COMPARED_MAX:
            break
    return suggest(pipeline, names)
