"""Dispatches actions: each runs in its own task, at most one of a kind per run, and its result is a new fact.

Acts may be ordered again while they are under way: by another fact, or by a row that was read after a lost reply.
"""

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeAlias

from worker.core.errors import RetryLater
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline
from worker.core.run.effects import Act, EvaluateNow, FindJob, PollNow, StartJob, StopJob
from worker.core.run.facts import Fact, JobNotSeen
from worker.core.run.state import Run
from worker.engine.actions import JobActions
from worker.engine.session_authority import SessionAuthority
from worker.runtime.clock import Clock
from worker.runtime.logs import Log

REPORT_BACKOFF_MAX_S: Final = 30.0

# Called by the task itself, so that one that is cancelled before it began leaves nothing behind.
Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
# Starts a task about a run, by its name.
Begin: TypeAlias = Callable[[str, RunKey, Work], None]


class ActionDispatcher:
    """`held` is the run as it was last committed here; `take_in` decides on a fact, by the run as seen, and commits."""

    def __init__(
        self,
        acts: JobActions,
        standing: SessionAuthority,
        clock: Clock,
        *,
        begin: Begin,
        held: Callable[[RunKey], Run | None],
        take_in: Callable[[RunKey, Fact, Run | None], Awaitable[object]],
        evaluate: Callable[[RunKey], None],
        log: Log,
    ) -> None:
        self._acts, self._standing, self._clock, self._log = acts, standing, clock, log
        self._begin, self._held, self._take_in, self._evaluate = begin, held, take_in, evaluate
        self._sent: dict[RunKey, StartJob] = {}  # the starts whose answers are not recorded yet: none is sent twice
        self._doubted: dict[RunKey, tuple[FindJob, float]] = {}  # since when the outcome of a start is in doubt
        self._under_way: set[tuple[type[Act], RunKey]] = set()

    def order(self, act: Act, run: Run, pipeline: Pipeline) -> None:
        match act:
            case EvaluateNow():
                self._evaluate(run.key)
            case StartJob():
                self._order_start(act, run, pipeline)
            case FindJob():
                self._once(act, run.key, partial(self._find, run, pipeline, act))
            case PollNow():
                self._once(act, run.key, partial(self._report, run.key, partial(self._acts.poll, run, pipeline, act)))
            case StopJob():
                self._once(act, run.key, partial(self._report, run.key, partial(self._acts.stop, run, pipeline, act)))

    def forget_doubt(self, key: RunKey) -> None:
        """Whether the job was started is known by now."""
        self._doubted.pop(key, None)

    def _order_start(self, act: StartJob, run: Run, pipeline: Pipeline) -> None:
        if run.starter != self._standing.session or self._sent.get(run.key) == act:
            return
        self._sent[run.key] = act
        self._begin(f"start:{run.key}", run.key, partial(self._start, act, run, pipeline))

    async def _start(self, act: StartJob, run: Run, pipeline: Pipeline) -> None:
        answer = await self._acts.start(run, pipeline, act)
        if await self._tell_self(run.key, answer):
            # From here on the row itself says that this start is over.
            self._sent.pop(run.key, None)

    async def _find(self, run: Run, pipeline: Pipeline, act: FindJob) -> None:
        """Wait, on our own clock, until every start must be visible; then look. Before, only a sight of it counts."""
        asked, since = self._doubted.get(run.key, (act, self._clock.monotonic()))
        if asked != act:
            since = self._clock.monotonic()
        self._doubted[run.key] = (act, since)
        seen_at = since + self._acts.time_to_be_seen(run, pipeline).total_seconds()
        fact: Fact | None = None
        if self._clock.monotonic() < seen_at:
            fact = await self._acts.find_early(run, pipeline, act)
        if isinstance(fact, JobNotSeen):
            await self._tell_self(run.key, fact)
            fact = None
        if fact is None and self._is_wanted(run, act):
            await self._clock.sleep(max(0.0, seen_at - self._clock.monotonic()))
            held = self._is_wanted(run, act)
            fact = await self._acts.find(held, pipeline, act) if held else None
        if fact is not None:
            await self._tell_self(run.key, fact)

    def _is_wanted(self, run: Run, act: FindJob) -> Run | None:
        """The run as it is now, unless its start was settled meanwhile, or sent again.

        To look by sending could start what nobody waits for.
        """
        held = self._held(run.key)
        is_same = held is not None and (held.token, held.start_step) == (act.token, run.start_step)
        return held if is_same else None

    async def _report(self, key: RunKey, work: Callable[[], Awaitable[Fact]]) -> None:
        await self._tell_self(key, await work())

    async def _tell_self(self, key: RunKey, fact: Fact) -> bool:
        """Take in what our own act brought; False if we were lost before. Only we know it, so it is tried till then."""
        wait_s = 1.0
        while self._standing.may_act():
            try:
                await self._take_in(key, fact, self._held(key))
            except RetryLater as problem:
                self._log("fact.delayed", {"run": str(key), "fact": type(fact).__name__, "problem": str(problem)})
            else:
                return True
            await self._clock.sleep(wait_s)
            wait_s = min(2 * wait_s, REPORT_BACKOFF_MAX_S)
        return False

    def _once(self, act: Act, key: RunKey, work: Work) -> None:
        """Start the work, unless the same is under way for this run."""
        name = (type(act), key)
        if name not in self._under_way:
            self._under_way.add(name)
            self._begin(f"{type(act).__name__}:{key}", key, partial(self._counted, name, work))

    async def _counted(self, name: tuple[type[Act], RunKey], work: Work) -> None:
        try:
            await work()
        finally:
            self._under_way.discard(name)
