"""Virtual time: a loop whose clock jumps to the next timer, and hosts on it that can freeze and crash.

Hours of sleeping pass in milliseconds, and the same program does the same thing every time. Time jumps only when
nothing is left to run, so whatever happens at one instant happens in the order in which it was asked for.

A `Host` stands for one machine. Everything started on it, and whatever that starts, stops when the host freezes and
goes on when it thaws, as after SIGSTOP and SIGCONT: its timers ran out meanwhile, and it does not know. A crashed host
never goes on: no `finally` of it runs, as after SIGKILL.
"""

import asyncio
import functools
import os
import random
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from datetime import datetime, timedelta
from typing import Any, Final, ParamSpec, TypeVar, TypeVarTuple, Unpack

from tests.manualclock import NOON

T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")

# Nothing is scheduled, and for this long of real time nothing came from outside: everyone waits for someone.
STALL_S: Final = 2.0
INSTANT_S: Final = 1e-6  # the shortest sleep

# What the worker's pauses are drawn from. A test must hold whatever is drawn: try others to find one that does not.
SEED: Final = os.environ.get("VIRTUAL_SEED", "1")


class Deadlock(Exception):
    """Every task waits, and no timer is set."""


class _JumpingSelector(selectors.DefaultSelector):
    """Where a loop would wait for time to pass, this moves its clock on instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
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
        self.now_s = round(self.now_s + timeout, 9)
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
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        self.hosts: list[Host] = []
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        host = context.get(_HOST)
        if host is None:
            return super().call_soon(callback, *args, context=context)
        step = _Step(host, callback, args, context)
        step.handle = handle = super().call_soon(step, context=context)
        return handle

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        host = context.get(_HOST)
        if host is None:
            return super().call_at(when, callback, *args, context=context)
        step = _Step(host, callback, args, context)
        step.handle = timer = super().call_at(when, step, context=context)
        return timer

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
        for step in missed:
            step.run_later(self._loop)

    def missed(self, step: "_Step") -> None:
        self._missed.append(step)


class _Step:
    """A callback that waits while its host is frozen. One that is cancelled meanwhile never runs."""

    __slots__ = ("_args", "_callback", "_context", "_host", "handle")

    handle: asyncio.Handle

    def __init__(self, host: Host, callback: Callable[..., object], args: tuple[object, ...], context: Context) -> None:
        self._host, self._callback, self._args, self._context = host, callback, args, context

    def __call__(self) -> None:
        if self._host.is_frozen:
            self._host.missed(self)
        else:
            self._callback(*self._args)

    def run_later(self, loop: asyncio.AbstractEventLoop) -> None:
        # By a callback outside of any host: the step itself looks again whether its host has frozen anew.
        loop.call_soon(self._context.run, self._run_if_wanted, context=Context())

    def _run_if_wanted(self) -> None:
        # The loop itself runs nothing that was cancelled, but it has been here before and does not look again.
        if not self.handle.cancelled():
            self()


_HOST: ContextVar[Host | None] = ContextVar("host", default=None)

# For what belongs to no host, such as a request on its way: it goes on whatever becomes of its sender.
OUTSIDE: Final = Context()


class VirtualClock:
    """`worker.runtime.clock.Clock` on the loop's time. Each host may have its own, that is off or runs fast or slow."""

    def __init__(self, start: datetime = NOON, *, off_by: timedelta = timedelta(0), rate: float = 1.0) -> None:
        self._began_at, self._rate = start + off_by, rate
        self._loop: asyncio.AbstractEventLoop | None = None

    def now(self) -> datetime:
        return self._began_at + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        # Kept, because time is asked for more often than anything else, and to ask for the loop is a system call.
        if self._loop is None or not self._loop.is_running():
            self._loop = asyncio.get_running_loop()
        return self._loop.time() * self._rate

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
