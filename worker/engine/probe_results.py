"""Probe results: send a probe, store what it found if that is news, and report one that keeps failing."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from worker.core.errors import RetryLater
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.ids import PipelineId
from worker.core.model.keys import RunKey, SessionId
from worker.core.probes.trait import Observation, ProbeAnswer, ProbeUnknown, Trait, observe, too_early_by
from worker.core.time.periods import Period
from worker.core.time.timestamps import format_rfc3339
from worker.engine.commits import Commits
from worker.engine.session_authority import SessionAuthority
from worker.probes.prober import ProbeCall, Prober
from worker.runtime.clock import Clock
from worker.runtime.logs import Log
from worker.store.repos.probes.traits import ProbeTraits
from worker.store.table import StaleWrite, Tables
from worker.targets.priority_gate import Urgency

TRIES_MAX: Final = 6
SENT_KEPT: Final = 1024
FAILURES_TOLD: Final = 3  # in a row without a valid result: then people hear of it


class _Sent(NamedTuple):
    at_s: float
    counts_until_s: float


class TraitKey(NamedTuple):
    """Names the result of a probe. Runs with the same one share it."""

    pipeline: PipelineId
    key: str
    period: Period | None


def trait_key(call: ProbeCall) -> TraitKey:
    return TraitKey(call.pipeline, call.probe.key, call.probe.period_of_result(call.period))


class ProbeResults:
    """Sends probes and keeps their results, for this session."""

    def __init__(
        self,
        tables: Tables,
        prober: Prober,
        commits: Commits,
        standing: SessionAuthority,
        *,
        clock: Clock,
        log: Log,
    ) -> None:
        self._traits, self._prober, self._commits = ProbeTraits(tables), prober, commits
        self._standing, self._clock, self._log = standing, clock, log
        self._failures: dict[TraitKey, int] = {}
        self._sent: dict[TraitKey, _Sent] = {}
        self._sent_max = SENT_KEPT  # then those whose interval is over are dropped

    async def claim(self, name: TraitKey) -> Trait | None:
        """Return the trait if this worker is to send its probe; None if another live worker does.

        Raises `RetryLater`.
        """
        me = self._standing.session
        trait = await self._traits.get(*name) or Trait(key=name.key, period=name.period)
        if trait.prober == me:
            return trait
        if trait.prober and not await self._standing.is_over(SessionId(trait.prober)):
            return None
        try:
            return await self._traits.put(name.pipeline, replace(trait, prober=me), self._clock.now())
        except StaleWrite:
            return None  # another worker was first

    async def release(self, name: TraitKey) -> None:
        """Let other workers send the probe, if this one does, when its interval is over. Raises `RetryLater`."""
        self.forget(name)
        trait = await self._traits.get(*name)
        if trait is None or trait.prober != self._standing.session:
            return
        try:
            now = self._clock.now()
            await self._traits.put(name.pipeline, replace(trait, prober="", asked_at=self._asked_at(name, now)), now)
        except StaleWrite:
            await self.release(name)  # a result came between; only this session claims and releases its own

    async def load(self, name: TraitKey) -> Trait:
        return await self._traits.get(*name) or Trait(key=name.key, period=name.period)

    async def ask(
        self, call: ProbeCall, seen: Trait, run: RunKey, urgency: Urgency = Urgency.POLL
    ) -> tuple[ProbeAnswer, Observation | None]:
        """Send a probe and store what is news; the observation is None if this session was lost meanwhile.

        Raises `RetryLater`.
        """
        sent_at = self._clock.now()
        self._note_sent(call)
        answer = await self._prober.send(call, urgency)
        if not self._standing.may_act():
            return answer, None
        observed = await self._stored(call, seen, answer, sent_at)
        await self._tell(trait_key(call), call, answer, observed, run)
        return answer, observed

    async def _stored(self, call: ProbeCall, seen: Trait, answer: ProbeAnswer, sent_at: datetime) -> Observation:
        """Store an answer if it is news. Raises `RetryLater` if other workers were first in every try."""
        name = trait_key(call)
        for _ in range(TRIES_MAX):
            now = self._clock.now()
            observed = observe(seen, call.probe, answer, now)
            if not observed.must_store:
                return observed
            try:
                await self._traits.put(name.pipeline, replace(observed.trait, asked_at=None), now)
            except StaleWrite:
                seen = await self.load(name)
                if seen.checked_at is not None and seen.checked_at > sent_at:
                    return replace(observed, trait=seen)  # a later request has stored its result
            else:
                return observed
        raise RetryLater(f"the result of probe {name.key} of {name.pipeline} was not stored in {TRIES_MAX} tries")

    def too_early_by(self, name: TraitKey, trait: Trait, every: timedelta) -> timedelta:
        """Return how long to wait until an interval has passed since the last request, if that is known."""
        sent = self._sent.get(name)
        if sent is None:
            return too_early_by(trait, every, self._clock.now())
        passed = timedelta(seconds=self._clock.monotonic() - sent.at_s)
        return max(every - passed, timedelta())

    def forget(self, name: TraitKey) -> None:
        """Forget the failures of a probe that nobody waits for, not when it was sent last."""
        self._failures.pop(name, None)

    def _note_sent(self, call: ProbeCall) -> None:
        now_s = self._clock.monotonic()
        self._sent[trait_key(call)] = _Sent(now_s, now_s + call.probe.every.total_seconds())
        if len(self._sent) >= self._sent_max:
            self._sent = {name: sent for name, sent in self._sent.items() if sent.counts_until_s > now_s}
            self._sent_max = max(SENT_KEPT, 2 * len(self._sent))

    def _asked_at(self, name: TraitKey, now: datetime) -> datetime | None:
        sent = self._sent.get(name)
        return None if sent is None else now - timedelta(seconds=self._clock.monotonic() - sent.at_s)

    async def _tell(
        self, name: TraitKey, call: ProbeCall, answer: ProbeAnswer, observed: Observation, run: RunKey
    ) -> None:
        """Log a failure and, once for each outage, emit an event for a probe that has no result to offer."""
        facts = {"pipeline": name.pipeline, "probe": name.key, "period": str(name.period or "")}
        if not isinstance(answer, ProbeUnknown):
            if self._failures.pop(name, 0):
                self._log("probe.recovered", facts)
            return
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        if failures == 1:
            self._log("probe.failed", {**facts, "problem": answer.reason})
        failure, now = observed.trait.failure, self._clock.now()
        if failures < FAILURES_TOLD or failure is None or observed.trait.is_valid(now):
            return
        told = EmitEvent(
            type=EventType.PROBE_FAILED,
            message=f"{run}: probe {name.key} has no current result: {failure.reason}",
            detail={
                "probe": name.key,
                "probeType": call.probe.type.value,
                "reason": failure.reason,
                "failingSince": format_rfc3339(failure.since),
                "actionHint": f"ask it yourself: `interlock probe test {name.pipeline} {name.key}`",
            },
            once=True,
            about=f"{name.key}-{failure.since.timestamp():.0f}",
        )
        await self._commits.tell_once(run, told, now)
