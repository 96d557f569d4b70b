"""What the handlers of the API share: the store, the clock, and who calls."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, cast

from fastapi import Depends, Request

from worker.config.versions import PipelineVersions
from worker.jobs.aws.log_tails import LogTails
from worker.operations.pipelines.lineage import LineageReader
from worker.operations.runs.statistics import RunStatistics
from worker.operations.sensors.writes import SensorWriter
from worker.runtime.clock import Clock
from worker.store.table import ChangeFeed, Tables
from worker.web.access import Caller
from worker.web.guard import CALLER, REQUEST_ID
from worker.web.live.polled_source import READS_PER_S
from worker.web.live.updates import LiveUpdates, open_updates

BULKS_AT_ONCE_MAX: Final = 4  # bulk operations that one server carries out at a time
STATISTICS_KEPT: Final = timedelta(seconds=5)  # of the current day; earlier days are read as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """ApiContext holds what every handler may use; one for the whole application.

    `feed` is the change feed of an embedded store; a store without one is polled, within `reads_per_s`.
    """

    tables: Tables
    clock: Clock
    job_folder: Path | None = None  # of the files of command jobs on this machine
    tails: LogTails | None = None  # reads logs of jobs on AWS; None: only their location is shown
    feed: ChangeFeed | None = None
    reads_per_s: float = READS_PER_S
    live: LiveUpdates = field(init=False)
    versions: PipelineVersions = field(init=False)  # shared, because a parsed configuration is worth keeping

    bulk_turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(BULKS_AT_ONCE_MAX))
    lineage: LineageReader = field(init=False)  # shared, because it follows the graph of all pipelines
    sensors: SensorWriter = field(init=False)
    statistics: RunStatistics = field(init=False)  # shared, so that any number of callers list the current day once

    def __post_init__(self) -> None:
        versions = PipelineVersions(self.tables)
        live = open_updates(self.tables, self.clock, feed=self.feed, reads_per_s=self.reads_per_s, versions=versions)
        object.__setattr__(self, "live", live)
        object.__setattr__(self, "versions", versions)
        object.__setattr__(self, "lineage", LineageReader(self.tables, versions, self.clock))
        object.__setattr__(self, "statistics", RunStatistics(self.tables, kept=STATISTICS_KEPT))
        object.__setattr__(self, "sensors", SensorWriter(self.tables, self.clock, versions))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAuthor:
    """RequestAuthor is who sent a request, and the id by which logs and events know it."""

    caller: Caller
    request_id: str


async def _context(request: Request) -> ApiContext:
    return cast("ApiContext", request.app.state.context)


async def _author(request: Request) -> RequestAuthor:
    state = request.scope["state"]
    return RequestAuthor(caller=state[CALLER], request_id=state[REQUEST_ID])


Context = Annotated[ApiContext, Depends(_context)]
Author = Annotated[RequestAuthor, Depends(_author)]
