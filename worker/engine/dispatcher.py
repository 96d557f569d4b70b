"""Action dispatcher: runs each action in its own task and hands its result on as a fact.

At most one action of a kind runs per run. An action may be ordered again while it runs: by another fact, or by a row
that was read after a lost reply.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from worker.core.errors import RetryLater
from worker.core.model.keys import RowKind, RunKey
from worker.core.model.pipeline import Pipeline
from worker.core.run.effects import Act, EvaluateNow, FindJob, PollNow, StartJob, StopJob
from worker.core.run.facts import Fact, JobNotSeen
from worker.core.run.state import Run
from worker.engine.actions import JobActions
from worker.engine.evaluations import Evaluations, Handle
from worker.engine.run_tasks import Spawn, Work
from worker.engine.session_authority import SessionAuthority
from worker.engine.timer_keys import TimerKey
from worker.runtime.clock import Clock
from worker.runtime.logs import Log

REPORT_BACKOFF_MAX_S: Final = 30.0


class ActionDispatcher:
    """Executes actions and hands each result to `handle`. `held` has the runs as last committed here."""

    def __init__(
        self,
        actions: JobActions,
        evaluations: Evaluations,
        standing: SessionAuthority,
        clock: Clock,
        *,
        held: Mapping[RunKey, Run],
        handle: Handle,
        spawn: Spawn,
        log: Log,
    ) -> None:
        self._actions, self._evaluations = actions, evaluations
        self._standing, self._clock, self._log = standing, clock, log
        self._held, self._handle, self._spawn = held, handle, spawn
        self._sent: dict[RunKey, StartJob] = {}  # starts whose answers are not recorded yet: none is sent twice
        self._doubted: dict[RunKey, tuple[FindJob, float]] = {}  # since when a start's outcome is unknown
        self._under_way: set[tuple[type[Act], RunKey]] = set()

    def dispatch(self, act: Act, run: Run, pipeline: Pipeline) -> None:
        match act:
            case EvaluateNow():
                self._evaluations.request(run.key)
            case StartJob():
                self._dispatch_start(act, run, pipeline)
            case FindJob():
                self._once(act, run.key, partial(self._find, run, pipeline, act))
            case PollNow():
                self._report_once(act, run.key, partial(self._actions.poll, run, pipeline, act))
            case StopJob():
                self._report_once(act, run.key, partial(self._actions.stop, run, pipeline, act))

    def forget_doubt(self, key: RunKey) -> None:
        """Forget since when the run's start is in doubt: its outcome is known."""
        self._doubted.pop(key, None)

    def _dispatch_start(self, act: StartJob, run: Run, pipeline: Pipeline) -> None:
        if run.starter != self._standing.session or self._sent.get(run.key) == act:
            return
        self._sent[run.key] = act
        self._spawn_for(f"start:{run.key}", run.key, partial(self._start, act, run, pipeline))

    async def _start(self, act: StartJob, run: Run, pipeline: Pipeline) -> None:
        answer = await self._actions.start(run, pipeline, act)
        if await self._hand_over(run.key, answer):
            # The row now records the answer of this start.
            self._sent.pop(run.key, None)

    async def _find(self, run: Run, pipeline: Pipeline, act: FindJob) -> None:
        """Wait until the target must list every job that was started, then search for the job.

        The wait uses the monotonic clock. An earlier search counts only if it finds the job.
        """
        asked, since = self._doubted.get(run.key, (act, self._clock.monotonic()))
        if asked != act:
            since = self._clock.monotonic()
        self._doubted[run.key] = (act, since)
        seen_at = since + self._actions.time_to_be_seen(run, pipeline).total_seconds()
        fact: Fact | None = None
        if self._clock.monotonic() < seen_at:
            fact = await self._actions.find_early(run, pipeline, act)
        if isinstance(fact, JobNotSeen):
            await self._hand_over(run.key, fact)
            fact = None
        if fact is None and self._is_wanted(run, act):
            await self._clock.sleep(max(0.0, seen_at - self._clock.monotonic()))
            held = self._is_wanted(run, act)
            fact = await self._actions.find(held, pipeline, act) if held else None
        if fact is not None:
            await self._hand_over(run.key, fact)

    def _is_wanted(self, run: Run, act: FindJob) -> Run | None:
        """Return the run as held now; None if its start was settled or sent again meanwhile.

        A search that sends the start could otherwise start a job that no run waits for.
        """
        held = self._held.get(run.key)
        is_same = held is not None and (held.token, held.start_step) == (act.token, run.start_step)
        return held if is_same else None

    def _report_once(self, act: Act, key: RunKey, work: Callable[[], Awaitable[Fact]]) -> None:
        self._once(act, key, partial(self._report, key, work))

    async def _report(self, key: RunKey, work: Callable[[], Awaitable[Fact]]) -> None:
        await self._hand_over(key, await work())

    async def _hand_over(self, key: RunKey, fact: Fact) -> bool:
        """Hand over a result until it is handled; return False if this session was lost before that.

        Only this session knows the result, so it repeats the call.
        """
        wait_s = 1.0
        while self._standing.may_act():
            try:
                await self._handle(key, fact, self._held.get(key))
            except RetryLater as problem:
                self._log("fact.delayed", {"run": str(key), "fact": type(fact).__name__, "problem": str(problem)})
            else:
                return True
            await self._clock.sleep(wait_s)
            wait_s = min(2 * wait_s, REPORT_BACKOFF_MAX_S)
        return False

    def _once(self, act: Act, key: RunKey, work: Work) -> None:
        """Start the work, unless the same kind of work is under way for this run."""
        name = (type(act), key)
        if name not in self._under_way:
            self._under_way.add(name)
            self._spawn_for(f"{type(act).__name__}:{key}", key, partial(self._counted, name, work))

    async def _counted(self, name: tuple[type[Act], RunKey], work: Work) -> None:
        try:
            await work()
        finally:
            self._under_way.discard(name)

    def _spawn_for(self, name: str, key: RunKey, work: Work) -> None:
        self._spawn(name, TimerKey(RowKind.TRIGGER, key), work)
