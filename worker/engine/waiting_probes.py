"""Waiting probes: sends the probes that waiting runs need, once per interval across all workers."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias

from worker.core.errors import RetryLater
from worker.core.model.keys import RowKind, RunKey
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.model.probes import ProbeRun
from worker.core.probes.trait import ProbeUnknown
from worker.core.run.evaluation import required_sensors
from worker.engine.probe_results import ProbeResults, TraitKey, trait_key
from worker.engine.session_authority import SessionAuthority
from worker.probes.prober import ProbeCall
from worker.runtime.backoff import TRY_AGAIN_AFTER
from worker.runtime.clock import Clock
from worker.runtime.logs import Log
from worker.runtime.timers import Timers
from worker.targets.priority_gate import Urgency

# After a request that showed nothing right before a start, the next one waits this long, or for the probe's interval.
CONFIRM_AGAIN_AFTER: Final = timedelta(seconds=30)

# How many runs are evaluated at once when a result changes, and how soon the next ones are.
WOKEN_AT_ONCE: Final = 25
WOKEN_EVERY_S: Final = 0.05

Waiter: TypeAlias = tuple[RowKind, RunKey]
# Starts a task by its name, unless this session is lost.
SpawnProbe: TypeAlias = Callable[[str, Callable[[], Coroutine[Any, Any, None]]], None]


@dataclass(slots=True)
class _Need:
    """Holds a probe that waiting runs of this worker need. `is_own`: no other worker can need it."""

    call: ProbeCall
    is_own: bool
    waiters: dict[Waiter, None] = field(default_factory=dict[Waiter, None])  # in the order in which they came


class WaitingProbes:
    """Knows which runs of this worker wait for which probes. `wake` requests an evaluation of a run."""

    def __init__(
        self,
        results: ProbeResults,
        standing: SessionAuthority,
        clock: Clock,
        log: Log,
        *,
        spawn: SpawnProbe,
        wake: Callable[[RowKind, RunKey], None],
    ) -> None:
        self._results, self._standing, self._clock, self._log = results, standing, clock, log
        self._spawn, self._wake = spawn, wake
        self._needs: dict[TraitKey, _Need] = {}
        self._of_run: dict[Waiter, tuple[TraitKey, ...]] = {}
        self._timers: Timers[TraitKey] = Timers(clock)
        self._under_way: set[TraitKey] = set()
        self._confirm_after_s: dict[TraitKey, tuple[float, str]] = {}  # monotonic: the wall clock may be set

    async def run(self) -> None:
        """Send the probes that are due, until cancelled."""
        await self._timers.run(self._fire)

    def __len__(self) -> int:
        """Return how many probes this worker's waiting runs need."""
        return len(self._needs)

    # --- who waits ----------------------------------------------------------------------------------------------------

    def wait(self, kind: RowKind, key: RunKey, pipeline: Pipeline, schedule: Schedule) -> None:
        """Note that a run waits; its probes are sent from now on. Cheap to repeat."""
        waiter = (kind, key)
        calls = {trait_key(call): call for call in needed_probes(key, pipeline, schedule)}
        for name in self._of_run.get(waiter, ()):
            if name not in calls:
                self._drop(name, waiter)
        for name, call in calls.items():
            need = self._needs.get(name)
            if need is None:
                need = self._needs[name] = _Need(call, is_own=_is_own(call, pipeline))
                self._timers.set(name, self._clock.now())
            need.call, need.is_own = call, need.is_own and _is_own(call, pipeline)
            need.waiters[waiter] = None
        if calls:
            self._of_run[waiter] = tuple(calls)

    def leave(self, kind: RowKind, key: RunKey) -> None:
        """Note that a run waits no longer. Cheap for a run that never did."""
        for name in self._of_run.pop((kind, key), ()):
            self._drop(name, (kind, key))

    def _drop(self, name: TraitKey, waiter: Waiter) -> None:
        need = self._needs.get(name)
        if need is None:
            return
        need.waiters.pop(waiter, None)
        if need.waiters:
            return
        del self._needs[name]
        self._timers.cancel(name)
        self._confirm_after_s.pop(name, None)
        if need.is_own:
            self._results.forget(name)
        elif need.call.probe.run is not ProbeRun.ALWAYS:  # else the holder of the bucket keeps asking
            self._spawn(f"release:{name.pipeline}/{name.key}", partial(self._release, name))

    async def _release(self, name: TraitKey) -> None:
        try:
            await self._results.release(name)
        except RetryLater as problem:
            # The claim ends with this session; until then, other workers rely on this one.
            self._log("probe.kept", {"pipeline": name.pipeline, "probe": name.key, "problem": str(problem)})

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _fire(self, name: TraitKey) -> None:
        if name in self._needs and name not in self._under_way and self._standing.may_act():
            self._under_way.add(name)
            self._spawn(f"probe:{name.pipeline}/{name.key}", partial(self._turn, name))

    async def _turn(self, name: TraitKey) -> None:
        again_after = TRY_AGAIN_AFTER
        try:
            need = self._needs.get(name)
            if need is not None:
                again_after = await self._send(name, need)
        except RetryLater as problem:
            self._log("probe.delayed", {"pipeline": name.pipeline, "probe": name.key, "problem": str(problem)})
        finally:
            self._under_way.discard(name)
            if name in self._needs:
                self._timers.set(name, self._clock.now() + again_after)

    async def _send(self, name: TraitKey, need: _Need) -> timedelta:
        """Send a probe if it is this worker's turn; return after how long the next request is due."""
        every = need.call.probe.every
        trait = await (self._results.load(name) if need.is_own else self._results.claim(name))
        if trait is None or not need.waiters:
            return every
        # Also if a standing probe, or the last confirmation before a start, has asked the same.
        if early := self._results.too_early_by(name, trait, every):
            return early
        _, observed = await self._results.ask(need.call, trait, min(key for _, key in need.waiters))
        if observed is not None and observed.is_changed:
            self._confirm_after_s.pop(name, None)
            # Beside the requests: with thousands of runs, it takes longer than an interval.
            self._spawn(f"wake:{name.pipeline}/{name.key}", partial(self._wake_all, need))
        return every

    async def _wake_all(self, need: _Need) -> None:
        """Request an evaluation of every run that waits, few at a time, so that the loop goes on."""
        for number, (kind, key) in enumerate([*need.waiters], 1):
            if (kind, key) in need.waiters:
                self._wake(kind, key)
            if number % WOKEN_AT_ONCE == 0:
                await self._clock.sleep(WOKEN_EVERY_S)

    # --- right before a start -----------------------------------------------------------------------------------------

    async def confirm(self, key: RunKey, pipeline: Pipeline, schedule: Schedule) -> Mapping[str, str] | None:
        """Send the `before-start` probes of a run once more; None if it has none.

        Returns, by key, why a probe could not confirm its result.
        """
        calls = [call for call in needed_probes(key, pipeline, schedule) if call.probe.run is ProbeRun.BEFORE_START]
        if not calls:
            return None
        async with asyncio.TaskGroup() as requests:
            tasks = {call.probe.key: requests.create_task(self._confirm_one(call, key)) for call in calls}
        return {name: reason for name, task in tasks.items() if (reason := task.result())}

    async def _confirm_one(self, call: ProbeCall, key: RunKey) -> str:
        name, now_s = trait_key(call), self._clock.monotonic()
        after_s, reason = self._confirm_after_s.get(name, (now_s, ""))
        if now_s < after_s:
            return reason
        try:
            answer, _ = await self._results.ask(call, await self._results.load(name), key, Urgency.START)
            if not isinstance(answer, ProbeUnknown):
                return ""
            problem = answer.reason
        except RetryLater as trouble:
            problem = str(trouble)
        reason = f"probe {call.probe.key} was not confirmed right before the start: {problem}"
        pause = min(call.probe.every, CONFIRM_AGAIN_AFTER)
        if name in self._needs:
            self._confirm_after_s[name] = (self._clock.monotonic() + pause.total_seconds(), reason)
        return reason


def needed_probes(key: RunKey, pipeline: Pipeline, schedule: Schedule) -> Iterable[ProbeCall]:
    """Return the probes that decide whether a run may start: those that its trigger and its rules name."""
    if not pipeline.probes:
        return []
    names = set(required_sensors(pipeline, schedule))
    return [
        ProbeCall(pipeline=key.pipeline, schedule=key.schedule, period=key.period, probe=probe)
        for probe in pipeline.probes
        if probe.key in names
    ]


def _is_own(call: ProbeCall, pipeline: Pipeline) -> bool:
    """Return whether only one run can need a result, so that its worker need not claim it."""
    return call.probe.is_dated and len(pipeline.schedules) == 1 and call.probe.run is not ProbeRun.ALWAYS
