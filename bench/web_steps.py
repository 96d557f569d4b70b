"""What the event loop does: how late it is, and how long each single step of it takes."""

import asyncio
import resource
from asyncio import events
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from time import perf_counter, thread_time
from typing import Any, Final, cast

KEPT_FROM_S: Final = 0.004


@dataclass(frozen=True, slots=True, order=True)
class LongStep:
    """LongStep is one callback of the loop. CPU is that of its thread: what the process did, whatever else ran."""

    cpu_s: float
    wall_s: float
    name: str


@dataclass(slots=True)
class StepMeter:
    """Times every step of the loop of this process, apart from those of the task that measures."""

    steps: int = 0
    longest: list[LongStep] = field(default_factory=list[LongStep])

    @contextmanager
    def watching(self) -> Generator[None]:
        handle: Any = events.Handle
        run, own = handle._run, asyncio.current_task()  # noqa: SLF001  the loop has no hook for this

        def timed(given: Any) -> None:  # noqa: ANN401  a handle of the loop
            cpu, wall = thread_time(), perf_counter()
            run(given)
            cpu, wall = thread_time() - cpu, perf_counter() - wall
            self.steps += 1
            if cpu >= KEPT_FROM_S and (task := _task_of(given)) is not own:
                self.longest.append(LongStep(cpu, wall, task.get_name() if task else repr(given)[:80]))

        handle._run = timed  # noqa: SLF001
        try:
            yield
        finally:
            handle._run = run  # noqa: SLF001

    @property
    def most(self) -> LongStep:
        return max(self.longest, default=LongStep(KEPT_FROM_S, KEPT_FROM_S, "none was longer"))


def _task_of(handle: Any) -> "asyncio.Task[object] | None":  # noqa: ANN401
    owner = getattr(handle._callback, "__self__", None)  # noqa: SLF001
    return cast("asyncio.Task[object]", owner) if isinstance(owner, asyncio.Task) else None


@dataclass
class LoopLag:
    """How late the event loop calls a timer of 5 ms."""

    late_s: list[float] = field(default_factory=list[float])

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch(), name="lag")
            yield
            watching.cancel()

    async def _watch(self) -> None:
        while True:
            begin = perf_counter()
            await asyncio.sleep(0.005)
            self.late_s.append(perf_counter() - begin - 0.005)

    def ms(self, hundredth: int) -> float:
        return quantiles(self.late_s, n=100)[hundredth - 1] * 1e3 if len(self.late_s) > 1 else 0.0

    @property
    def text(self) -> str:
        return f"p50 {self.ms(50):.1f} ms, p99 {self.ms(99):.1f} ms, most {max(self.late_s, default=0) * 1e3:.0f} ms"


def memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6
