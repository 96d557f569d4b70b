"""Virtual time: a loop whose clock jumps to the next timer, and hosts on it that can freeze and crash.

Hours of sleeping pass in milliseconds, and the same program does the same thing every time. Time jumps only when
nothing is left to run, so whatever happens at one instant happens in the order in which it was asked for.

A `Host` stands for one machine. Everything started on it, and whatever that starts, stops when the host freezes and
goes on when it thaws, as after SIGSTOP and SIGCONT: its timers ran out meanwhile, and it does not know. A crashed host
never goes on: no `finally` of it runs, as after SIGKILL.
"""

import asyncio
import functools
import heapq
import os
import random
import selectors
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from datetime import datetime, timedelta
from typing import Any, Final, ParamSpec, TypeVar, TypeVarTuple, Unpack

from tests.support.clock.manual import NOON

T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")

# Nothing is scheduled, and for this long of real time nothing came from outside: everyone waits for someone.
STALL_S: Final = 2.0
INSTANT_S: Final = 1e-6  # the shortest sleep

# As asyncio has them. Which of two timers of one instant comes first depends on when cancelled ones are cleared away.
JUMP_MAX_S: Final = 86_400.0
TIMERS_MANY: Final = 100
CANCELLED_MAX: Final = 0.5  # as a share
_RESOLUTION_S: Final = time.get_clock_info("monotonic").resolution

# What the worker's pauses are drawn from. A test must hold whatever is drawn: try others to find one that does not.
SEED: Final = os.environ.get("VIRTUAL_SEED", "1")


class Deadlock(Exception):
    """Every task waits, and no timer is set."""


class _JumpingSelector(selectors.DefaultSelector):
    """Where a loop would wait for time to pass, this moves its clock on instead."""

    def __init__(self, loop: "VirtualLoop") -> None:
        super().__init__()
        self._loop = loop
        self.threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0 and not self.threads:
            return []  # there is more to do at this instant: the outside can wait
        if self.threads or self._is_open_to_others():
            ready = super().select(0)
            if ready or (timeout is not None and timeout <= 0):
                return ready
        if self.threads:
            return super().select(None)  # a job in an executor takes real time
        if timeout is None:
            return self._wait_for_outside()
        # Rounded, so that a sum of steps does not stop a hair before the timer it was meant to reach.
        self._loop.now_s = round(self._loop.now_s + timeout, 9)
        return []

    def _is_open_to_others(self) -> bool:
        # One is always there: the loop's own, by which threads wake it. To ask it at each jump costs a system call.
        return len(self.get_map()) > 1

    def _wait_for_outside(self) -> list[tuple[selectors.SelectorKey, int]]:
        if ready := super().select(STALL_S):
            return ready
        raise Deadlock("no task can go on and no timer is set; look for a wait that nobody ends")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time that knows which host each step belongs to.

    Threads other than those of `run_in_executor` are not waited for: keep them out of virtual time.

    A simulation does little else than to set and cancel timers, so one turn is done here, without what only debugging
    and real time need. The order of steps is asyncio's, down to timers of one instant.
    """

    _ready: "deque[asyncio.Handle]"  # asyncio's own: what comes from outside is put there, too
    _stopping: bool
    _process_events: Callable[[list[tuple[selectors.SelectorKey, int]]], None]

    def __init__(self) -> None:
        self.now_s, self.is_in_use = 0.0, False
        self._jumping = _JumpingSelector(self)
        self._timers: list[_Due] = []
        self.timers_cancelled = 0  # of those
        self.hosts: list[Host] = []
        super().__init__(self._jumping)

    def time(self) -> float:
        return self.now_s

    def run_forever(self) -> None:
        self.is_in_use = True
        try:
            super().run_forever()
        finally:
            self.is_in_use = False

    def close(self) -> None:
        super().close()
        self._timers.clear()

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        step = _Step(self, 0.0, callback, args, copy_context() if context is None else context)
        self._ready.append(step)
        return step

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        step = _Step(self, when, callback, args, copy_context() if context is None else context)
        due = _Due(when)
        due.step, step.is_waiting = step, True
        heapq.heappush(self._timers, due)
        return step

    def again(self, steps: Iterable["_Step"]) -> None:
        """Run steps that were not run in their turn."""
        self._ready.extend(steps)

    def _run_once(self) -> None:
        """One turn, as asyncio makes it."""
        ready, timers, jumping = self._ready, self._timers, self._jumping
        self._forget_cancelled()
        if not ready or jumping.threads:
            timeout = 0.0 if ready or self._stopping else None
            if timeout is None and timers:
                timeout = min(max(0.0, timers[0] - self.now_s), JUMP_MAX_S)
            self._process_events(jumping.select(timeout))
        end = self.now_s + _RESOLUTION_S
        while timers and timers[0] < end:
            step = heapq.heappop(timers).step
            step.is_waiting = False
            ready.append(step)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _forget_cancelled(self) -> None:
        timers = self._timers
        if len(timers) > TIMERS_MANY and self.timers_cancelled / len(timers) > CANCELLED_MAX:
            kept: list[_Due] = []
            for due in timers:
                if due.step.cancelled():
                    due.step.is_waiting = False
                else:
                    kept.append(due)
            heapq.heapify(kept)
            timers[:], self.timers_cancelled = kept, 0
            return
        while timers and timers[0].step.cancelled():
            heapq.heappop(timers).step.is_waiting = False
            self.timers_cancelled -= 1

    def _asyncgen_firstiter_hook(self, agen: AsyncGenerator[object, object]) -> None:
        """Keep no list of generators: those left open end with the tasks that hold them."""

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[Unpack[Ts]], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        self._jumping.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: object) -> None:
        self._jumping.threads -= 1


class Host:
    """One simulated machine. Start its program with `start`; what that starts belongs to it too."""

    def __init__(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "hosts live on a VirtualLoop only: use @on_virtual_time"
        self.name, self.is_frozen = name, False
        self._loop = loop
        self._missed: list[_Step] = []
        self._context = copy_context()
        self._context.run(_HOST.set, self)
        loop.hosts.append(self)

    def start(self, program: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        return self._loop.create_task(program, name=name or self.name, context=self._context.copy())

    def freeze(self) -> None:
        """Stop at once, in the middle of whatever it does."""
        self.is_frozen = True

    def crash(self) -> None:
        """Stop for good. (Its tasks are cleared away when the loop ends, out of sight of any test.)"""
        self.is_frozen = True

    def thaw(self) -> None:
        """Go on, with everything that happened meanwhile happening now, in order."""
        self.is_frozen = False
        missed, self._missed = self._missed, []
        self._loop.again(missed)

    def missed(self, step: "_Step") -> None:
        self._missed.append(step)


class _Step(asyncio.TimerHandle):
    """A callback that waits while its host is frozen. One that is cancelled meanwhile never runs."""

    __slots__ = ("_host", "is_waiting")

    _loop: VirtualLoop
    _callback: Callable[..., object] | None
    is_waiting: bool  # for its time to come

    def __init__(
        self,
        loop: VirtualLoop,
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context,
    ) -> None:
        # All that asyncio's own would set, with a fraction of its calls.
        self._loop, self._when, self._callback, self._args, self._context = loop, when, callback, args, context
        self._cancelled = self._scheduled = self.is_waiting = False
        self._repr = self._source_traceback = None
        self._host = context.get(_HOST)

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled, self._callback, self._args = True, None, ()
            self._loop.timers_cancelled += self.is_waiting

    def _run(self) -> None:
        if self._host is not None and self._host.is_frozen:
            self._host.missed(self)
        else:
            super()._run()


class _Due(float):
    """When a step is due. A number, because timers are compared more often than anything else is done with them."""

    __slots__ = ("step",)

    step: _Step


_HOST: ContextVar[Host | None] = ContextVar("host", default=None)

# For what belongs to no host, such as a request on its way: it goes on whatever becomes of its sender.
OUTSIDE: Final = Context()


class VirtualClock:
    """`worker.runtime.clock.Clock` on the loop's time. Each host may have its own, that is off or runs fast or slow."""

    def __init__(self, start: datetime = NOON, *, off_by: timedelta = timedelta(0), rate: float = 1.0) -> None:
        self._began_at, self._rate = start + off_by, rate
        self._loop: VirtualLoop | None = None
        self._now, self._now_at_s = self._began_at, 0.0  # the last answer: most ask again at the same instant

    def now(self) -> datetime:
        elapsed_s = self.monotonic()
        if elapsed_s != self._now_at_s:
            self._now, self._now_at_s = self._began_at + timedelta(seconds=elapsed_s), elapsed_s
        return self._now

    def monotonic(self) -> float:
        # Kept, because time is asked for more often than anything else, and to ask for the loop is a system call.
        loop = self._loop
        if loop is None or not loop.is_in_use:
            running = asyncio.get_running_loop()
            if not isinstance(running, VirtualLoop):
                return running.time() * self._rate
            self._loop = loop = running
        return loop.now_s * self._rate

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(self._of_loop(seconds))

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._of_loop(seconds), callback)

    def _of_loop(self, seconds: float) -> float:
        # Never less than the loop can tell apart: or who sleeps "the rest of the time" would do so for ever.
        return max(seconds / self._rate, INSTANT_S) if seconds > 0 else 0

    def step(self, by: timedelta) -> None:
        """Set the wall clock forward or back; elapsed time knows nothing of it."""
        self._began_at += by
        self._now += by


def run(program: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        drawn_before = random.getstate()
        random.seed(SEED)
        try:
            return runner.run(program)
        finally:
            random.setstate(drawn_before)
            loop = runner.get_loop()
            assert isinstance(loop, VirtualLoop)
            for host in loop.hosts:
                host.thaw()  # so that its tasks can be cancelled


def on_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make an async test a plain one that runs on virtual time."""

    @functools.wraps(test)
    def on_loop(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return on_loop
