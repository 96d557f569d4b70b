"""Polls job status with as few calls as the target allows: polls close in time share one list call."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from worker.core.errors import Rejected, RetryLater
from worker.core.model.pipeline import Job, JobType
from worker.jobs.runner import BatchRunner, JobStatus, Runner, StatusQuery, TargetDown
from worker.runtime.clock import Clock
from worker.targets.calls import Targets, target_of
from worker.targets.circuit_breaker import TargetClosed
from worker.targets.priority_gate import Urgency

# Read another page only while it is cheaper than separate calls: at most one page per this many open questions.
QUESTIONS_PER_PAGE_MIN: Final = 2
BATCH_MAX: Final = 20_000  # polls beyond this number are sent separately
# After a target rejects a list call, for example because a permission is missing, poll jobs separately for this long.
ALONE_S: Final = 600.0
NOT_WAITING: Final = timedelta()

# Starts a task that ends with the session.
Spawn: TypeAlias = Callable[[str, Callable[[], Coroutine[Any, Any, None]]], None]
_Key: TypeAlias = tuple[str, str]  # the target, and the group within it


@dataclass(slots=True)
class _Asked:
    question: StatusQuery
    # None: the list did not contain the job. A `RetryLater`: the target did not respond.
    answer: "asyncio.Future[JobStatus | RetryLater | None]"


@dataclass(slots=True, kw_only=True)
class _Gathering:
    target: str
    runner: BatchRunner
    asked: list[_Asked] = field(default_factory=list[_Asked])


class StatusCalls:
    def __init__(self, runners: Mapping[JobType, Runner], targets: Targets, clock: Clock, spawn: Spawn) -> None:
        self._runners, self._targets, self._clock, self._spawn = runners, targets, clock, spawn
        # Computed once, because `isinstance` with a protocol takes longer than the rest of a poll.
        self._batching = {kind: runner for kind, runner in runners.items() if isinstance(runner, BatchRunner)}
        self._gatherings: dict[_Key, _Gathering] = {}
        self._reading: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()
        self._alone_until: dict[_Key, float] = {}

    async def ask(self, job: Job, question: StatusQuery, patience: timedelta) -> JobStatus:
        """Return a job's status within `patience`. Raises `RetryLater` and `Rejected`, as the runner does."""
        target, batching = target_of(job), self._batching.get(job.type)
        if batching is not None and patience > NOT_WAITING:
            seen = await self._ask_with_others(batching, target, question, patience)
            if seen is not None:
                return seen
        alone = partial(self._runners[job.type].status, question.handle, question.config)
        return await self._targets.call(target, Urgency.POLL, alone)

    async def _ask_with_others(
        self, runner: BatchRunner, target: str, question: StatusQuery, patience: timedelta
    ) -> JobStatus | None:
        key = (target, runner.group(question))
        if not key[1] or self._is_asked_alone(key):
            return None
        gathering = self._gatherings.get(key)
        if gathering is None:
            gathering = self._gatherings[key] = _Gathering(target=target, runner=runner)
            self._spawn(f"polls:{target}", partial(self._gather, key, gathering, patience))
        if len(gathering.asked) >= BATCH_MAX:
            return None
        asked = _Asked(question, asyncio.get_running_loop().create_future())
        gathering.asked.append(asked)
        answer = await asked.answer
        if isinstance(answer, RetryLater):
            raise TargetDown(str(answer)) from answer
        return answer

    def _is_asked_alone(self, key: _Key) -> bool:
        until = self._alone_until.get(key)
        if until is not None and until <= self._clock.monotonic():
            del self._alone_until[key]
            until = None
        return until is not None

    async def _gather(self, key: _Key, gathering: _Gathering, patience: timedelta) -> None:
        await self._clock.sleep(patience.total_seconds())
        try:
            if len(gathering.asked) >= QUESTIONS_PER_PAGE_MIN:
                # Read one list per group at a time: a second concurrent read would not give an earlier result.
                async with self._reading.setdefault(key, asyncio.Lock()):
                    await self._look(key, gathering)
        except (TargetDown, TargetClosed) as problem:
            _settle(gathering, problem)
        except (RetryLater, Rejected):
            self._alone_until[key] = self._clock.monotonic() + ALONE_S
        finally:
            self._close(key, gathering)
            _settle(gathering, None)

    async def _look(self, key: _Key, gathering: _Gathering) -> None:
        more, pages = "", 0
        while pages == 0 or (more and pages < len(gathering.asked) // QUESTIONS_PER_PAGE_MIN):
            look = partial(self._read_page, key, gathering, more)
            more = await self._targets.call(gathering.target, Urgency.POLL, look, is_list=True)
            pages += 1

    async def _read_page(self, key: _Key, gathering: _Gathering, more: str) -> str:
        """Read one page and return the cursor of the next page, or "" if no more pages are needed.

        The batch accepts polls until this point: the longer a busy target delays the call, the more polls share it.
        """
        self._close(key, gathering)
        open_ones = [asked for asked in gathering.asked if not asked.answer.done()]
        if not open_ones:
            return ""
        sightings = await gathering.runner.look([asked.question for asked in open_ones], more)
        for place, status in sightings.seen.items():
            if not open_ones[place].answer.done():
                open_ones[place].answer.set_result(status)
        return sightings.more if len(sightings.seen) < len(open_ones) else ""

    def _close(self, key: _Key, gathering: _Gathering) -> None:
        if self._gatherings.get(key) is gathering:
            del self._gatherings[key]


def _settle(gathering: _Gathering, answer: RetryLater | None) -> None:
    """Resolve the polls that still wait: with None each polls separately, with an error none does."""
    for asked in gathering.asked:
        if not asked.answer.done():
            asked.answer.set_result(answer)
