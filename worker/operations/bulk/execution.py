"""Previews and carries out bulk operations: the same request for each run as the command for one run."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from worker.config.versions import Version
from worker.core.errors import ConfigError, Rejected, RetryLater
from worker.core.model.ids import PipelineId
from worker.core.model.keys import RunKey
from worker.core.run.forecast import Forecast, Prospect
from worker.operations.bulk.selection import digest_of
from worker.operations.operator_actions import Requester
from worker.operations.pipelines.lookup import version_of
from worker.operations.runs.requests import RequestOutcome, RerunSpec, RunRequests
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.runtime.rate_limit import TokenBucket
from worker.store.repos.bulk_operations import (
    BulkAction,
    BulkOperation,
    BulkOperations,
    BulkResult,
    BulkRunResult,
    result_write,
)
from worker.store.table import StaleWrite, Tables, Write

PER_SECOND: Final = 20.0
TRIES_MAX: Final = 6
BACKOFF_S: Final = 0.2
GOOD: Final = frozenset({Prospect.ACCEPTED, Prospect.WAITS})


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkSpec:
    """Describes what to request for each run."""

    action: BulkAction
    reason: str
    supersede: bool = False
    waive_sla: bool = False


@dataclass(frozen=True, slots=True)
class RunForecast:
    """Holds what a request for one run would lead to, as things stand."""

    key: RunKey
    forecast: Forecast

    @property
    def is_accepted(self) -> bool:
        return self.forecast.prospect in GOOD


class BulkRequests:
    """Requests a change of many runs on behalf of one requester."""

    def __init__(self, tables: Tables, clock: Clock, by: Requester, *, per_second: float = PER_SECOND) -> None:
        self._tables, self._clock, self._by = tables, clock, by
        self._operations = BulkOperations(tables)
        self._turns = TokenBucket(clock, per_second, burst=1)
        self._versions: dict[PipelineId, Version | None] = {}

    async def preview(self, runs: Sequence[RunKey], wanted: BulkSpec) -> list[RunForecast]:
        """Return the forecast for each run. Writes nothing. Raises `RetryLater`."""
        requests = RunRequests(self._tables, self._clock, is_rehearsed=True)
        return await gather_bounded([partial(self._foresee, requests, key, wanted) for key in runs])

    async def execute(
        self, operation: BulkOperation, tell: Callable[[BulkRunResult], None] = lambda _: None
    ) -> list[BulkRunResult]:
        """Request what is left of an operation, and return the results of all of its runs.

        `tell` gets each result, also those of an earlier, interrupted call. Raises `RetryLater`; what was requested
        until then stays, and the next call continues.
        """
        done = dict(await self._operations.results(operation.id))
        for key in operation.runs:
            if key not in done:
                await self._turns.take()
                done[key] = await self._settled(operation, key)
            tell(done[key])
        await self._operations.finish(operation, self._clock.now())
        return [done[key] for key in operation.runs]

    # --- one run ------------------------------------------------------------------------------------------------------

    async def _foresee(self, requests: RunRequests, key: RunKey, wanted: BulkSpec) -> RunForecast:
        try:
            version = await self._version(key.pipeline)
            if version is None:
                return RunForecast(key, _unknown(key))
            return RunForecast(key, (await _ask(requests, key, version, wanted)).forecast)
        except (ConfigError, Rejected) as error:
            return RunForecast(key, Forecast(Prospect.REFUSED, str(error)))

    async def _settled(self, operation: BulkOperation, key: RunKey) -> BulkRunResult:
        """Request a change of one run exactly once, even if another process carries out the operation too."""
        for tried in range(TRIES_MAX):
            try:
                return await self._request(operation, key)
            except StaleWrite:
                pass  # another request of the run was first, or another process with this one
            except RetryLater:
                if tried == TRIES_MAX - 1:
                    raise
                await self._clock.sleep(BACKOFF_S * 2**tried)
            with suppress(RetryLater):
                if (found := await self._operations.result(operation.id, key)) is not None:
                    return found
        raise RetryLater(f"the request for {key} collided with others {TRIES_MAX} times; resume the bulk operation")

    async def _request(self, operation: BulkOperation, key: RunKey) -> BulkRunResult:
        wanted = BulkSpec(
            action=operation.action,
            reason=operation.reason,
            supersede=operation.supersede,
            waive_sla=operation.waive_sla,
        )
        # The same id in every try: the run itself recognises the request too.
        request_id, now = digest_of((operation.id, str(key)))[:16], self._clock.now()
        requested = BulkRunResult(key=key, result=BulkResult.REQUESTED, sentence="", at=now)
        try:
            version = await self._version(key.pipeline)
            if version is None:
                return await self._reject(operation, key, _unknown(key).sentence)
            requests = RunRequests(self._tables, self._clock, by=self._by)
            along = result_write(operation.id, requested)
            asked = await _ask(requests, key, version, wanted, along, request_id=request_id)
        except (ConfigError, Rejected) as error:
            return await self._reject(operation, key, str(error))
        if not asked.is_written:
            return await self._reject(operation, key, asked.forecast.sentence)
        return replace(requested, sentence=asked.forecast.sentence)

    async def _reject(self, operation: BulkOperation, key: RunKey, why: str) -> BulkRunResult:
        rejected = BulkRunResult(key=key, result=BulkResult.REJECTED, sentence=why, at=self._clock.now())
        await self._tables.commit(result_write(operation.id, rejected))
        return rejected

    async def _version(self, pipeline: PipelineId) -> Version | None:
        if pipeline not in self._versions:
            self._versions[pipeline] = await version_of(self._tables, pipeline)
        return self._versions[pipeline]


async def _ask(
    requests: RunRequests, key: RunKey, version: Version, wanted: BulkSpec, *along: Write, request_id: str = ""
) -> RequestOutcome:
    if wanted.action is BulkAction.RERUN:
        # A command that was killed after its last request is typed again, and then it is another operation.
        spec = RerunSpec(reason=wanted.reason, supersede=wanted.supersede, is_only_once=True)
        return await requests.rerun(key, version, spec, *along, request_id=request_id)
    return await requests.cancel(key, version, wanted.reason, *along, waive_sla=wanted.waive_sla, request_id=request_id)


def _unknown(key: RunKey) -> Forecast:
    return Forecast(Prospect.REFUSED, f"there is no pipeline {key.pipeline} in the store")
