"""Finds the pipeline that a user named, and suggests a similar name if there is none."""

from typing import TYPE_CHECKING, Final

from worker.core.errors import Rejected
from worker.core.model.ids import PipelineId
from worker.store.repos.pipelines import Pipelines, StoredConfig
from worker.store.table import Tables

if TYPE_CHECKING:
    from worker.config.versions import Version
    from worker.core.model.pipeline import Pipeline

NAMES_COMPARED_MAX: Final = 1_000  # the list has pages: a typing error must not read all of them


async def version_of(tables: Tables, pipeline: PipelineId) -> "Version | None":
    """Return the version in force; None if there is none.

    Raises `Rejected` if the pipeline's configuration cannot be used.
    """
    from worker.config.versions import PipelineVersions, Unusable  # noqa: PLC0415  loading it is slow

    configs = PipelineVersions(tables)
    version = await configs.current(pipeline) or await configs.judged(pipeline)
    if isinstance(version, Unusable):
        raise Rejected(
            f"the configuration of {pipeline} cannot be used: {version.problems[0]}; correct its file and push it"
        )
    return version


def pipeline_in(stored: StoredConfig) -> "Pipeline | None":
    """Read a configuration leniently, because other tools deploy too; None if it is invalid."""
    from worker.config.load import load_text  # noqa: PLC0415  loading it is slow

    return load_text(stored.text or "", file=f"stored/{stored.pipeline}", lenient=True).pipeline


async def suggestion(tables: Tables, pipeline: PipelineId) -> str:
    """Return `did you mean …?`, or "" if none of the first 1,000 pipelines has a similar name."""
    from worker.config.suggestions import suggest  # noqa: PLC0415  only a mistyped name needs it

    names: list[str] = []
    async for stored in Pipelines(tables).list():
        names.append(stored.pipeline)
        if len(names) == NAMES_COMPARED_MAX:
            break
    return suggest(pipeline, names)
