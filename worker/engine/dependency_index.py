"""The dependency index: which pipelines run after which, as the deployed configurations say.

It is kept in memory and follows the log of configuration changes, so that the end of a run costs one look-up.
"""

from datetime import timedelta
from typing import Final

from worker.config.versions import PipelineVersions, Version
from worker.core.dependencies.graph import DependencyGraph
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.engine.config_follower import ConfigFollower
from worker.runtime.clock import Clock
from worker.store.table import Tables

REFRESH_EVERY: Final = timedelta(seconds=5)


class DependencyIndex:
    """Keeps the graph of all dependencies. `refresh` may raise `RetryLater`."""

    def __init__(self, tables: Tables, configs: PipelineVersions, clock: Clock) -> None:
        self.graph = DependencyGraph()
        self._changed: dict[PipelineId, None] = {}
        self._follower = ConfigFollower(tables, configs, clock, self, mention="after", every=REFRESH_EVERY)

    async def refresh(self) -> None:
        """Read what changed, at most every few seconds."""
        changed = await self._follower.refresh()
        self._changed.update(dict.fromkeys(pipeline for pipeline in changed if pipeline in self.graph))

    def is_unaffected(self, pipeline: PipelineId) -> bool:
        """Return whether the end of a pipeline's run concerns no other run, and nothing else is to be done."""
        is_alone = pipeline not in self.graph and not self.graph.downstreams(pipeline)
        return is_alone and not self._changed and self._follower.is_current()

    def next_changed(self) -> PipelineId | None:
        """Return a changed pipeline that runs after others and was not returned yet; None if there is none."""
        return self._changed.popitem()[0] if self._changed else None

    def return_changed(self, pipeline: PipelineId) -> None:
        """Return a changed pipeline again: handling it failed."""
        self._changed[pipeline] = None

    def note(self, version: Version) -> None:
        """Take over a version that this worker has just read."""
        self.graph.put(version.pipeline)

    def clear(self) -> None:
        self.graph = DependencyGraph()

    def put(self, pipeline: Pipeline) -> None:
        self.graph.put(pipeline)

    def remove(self, pipeline: PipelineId) -> None:
        self.graph.remove(pipeline)
