"""What probes of a simulated world ask: it flaps, goes silent, answers late, and remembers what it told to whom."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.simulation.invariants import CLOCKS_AGREE
from tests.simulation.plan import PROBE, PROBE_EVERY_S, PROBE_TTL_S, Plan
from tests.simulation.violations import Invariant, Verdicts
from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.content_hash import content_hash
from worker.core.model.keys import RowKind, RunKey, SessionId
from worker.core.model.pipeline import Pipeline
from worker.core.model.probes import Probe, ProbeRun
from worker.core.model.values import Json
from worker.core.probes.trait import ProbeUnknown
from worker.core.run.state import Run, State
from worker.probes.runner import ProbeRequest, RawResponse
from worker.store.repos.run_rows import run_from_row
from worker.store.table import Delete, Put, Row, TableName, Update, Write

LATE_S: Final = 40.0  # longer than a probe waits
AT_ONCE_S: Final = 30.0  # an answer that came so shortly before a commit need not be known to it
TOLERANCE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What was told. `data` is None if it showed nothing."""

    at_s: float
    data: Mapping[str, Json] | None

    @property
    def is_pass(self) -> bool:
        return self.data is not None and self.data["status"] == "PASS"


@dataclass(slots=True)
class Evaluators:
    """All of them, by the name in the request: of a pipeline, or of a pipeline and an hour."""

    plan: Plan
    pipelines: Mapping[str, Pipeline]
    verdicts: Verdicts
    random: Random
    over: set[str] = field(default_factory=set[str])  # sessions that ended, by their rows
    _changes: dict[str, list[tuple[float, str]]] = field(default_factory=dict[str, list[tuple[float, str]]])
    _sent: dict[str, list[tuple[float, str]]] = field(
        default_factory=lambda: defaultdict[str, list[tuple[float, str]]](list)
    )
    _told: dict[str, dict[str, list[Answer]]] = field(
        default_factory=lambda: defaultdict[str, dict[str, list[Answer]]](lambda: defaultdict(list))
    )
    _runs: dict[RunKey, State] = field(default_factory=dict[RunKey, State])

    def asker(self, session: SessionId) -> "Asker":
        return Asker(self, session)

    async def ask(self, request: ProbeRequest, session: SessionId) -> RawResponse | ProbeUnknown:
        name = str(request.config["path"])
        self._check_interval(name, request.pipeline, session)
        drawn = self.random.random()
        await asyncio.sleep(LATE_S if drawn < 0.02 else self.random.uniform(0.01, 2.0))
        status = self._status(name, _now())
        if status == "out" or drawn > 1.0 - self.plan.trouble:
            self._told[name][session].append(Answer(_now(), None))
            if drawn < 0.5:
                raise RetryLater("connection reset")
            return ProbeUnknown(kind="http-503", reason="the response was 503", is_down=drawn < 0.75)
        data: dict[str, Json] = {"status": status, "of": name}
        self._told[name][session].append(Answer(_now(), data))
        return RawResponse(value=data)

    def _status(self, name: str, at_s: float) -> str:
        """What is true of it now: it passes and fails in turns, and is silent in between."""
        changes = self._changes.get(name)
        if changes is None:
            random, begin = Random(f"evaluator {self.plan.seed} {name}"), 0.0
            changes = self._changes[name] = []
            while begin < (self.plan.hours + 12) * 3600.0:
                changes.append((begin, random.choices(["PASS", "FAIL", "out"], weights=[5, 3, 2])[0]))
                begin += random.uniform(120.0, 2400.0)
        return next(status for begin, status in reversed(changes) if begin <= at_s)

    # --- what must hold -----------------------------------------------------------------------------------------------

    def _check_interval(self, name: str, pipeline: str, session: SessionId) -> None:
        """One request in each interval, over all workers, unless the one that sent the last has died.

        A result that only one run needs goes with that run, at once, to the worker that decides about it next.
        """
        probe, now = self.pipelines[pipeline].probe(PROBE), _now()
        sent = [each for each in self._sent[name] if now - each[0] < PROBE_EVERY_S - TOLERANCE_S]
        self._sent[name] = [*sent, (now, session)]
        if probe is None or probe.run is ProbeRun.BEFORE_START:
            return  # before a start, it is sent once more whenever the last one was
        agreed_s = now - PROBE_EVERY_S + CLOCKS_AGREE.total_seconds()
        early = [
            f"{by} {now - at:.1f} s before"
            for at, by in sent
            if by == session or not (probe.is_dated or by in self.over or at < agreed_s)
        ]
        what = f"{session} asked {name}, after {early}"
        self.verdicts.require(not early, Invariant.ONE_REQUEST_PER_INTERVAL, what)

    def committed(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if write.table is not TableName.CONTROL:
                continue
            if write.key.sk.startswith(keys.SESSION):
                self._note_session(write)
            elif isinstance(write, Put) and write.key.sk.startswith(keys.TRIGGER):
                named = keys.run_row_of(write.key.pk, write.key.sk)
                if named is not None and named[0] is RowKind.TRIGGER:
                    self._note_run(named[1], write.row)

    def _note_session(self, write: Write) -> None:
        session = write.key.sk.removeprefix(keys.SESSION)
        is_dead = isinstance(write, Update) and write.set.get("state") in {"DEAD", "DRAINING"}
        if isinstance(write, Delete) or is_dead:
            self.over.add(session)

    def _note_run(self, key: RunKey, row: Row) -> None:
        run = run_from_row(row)
        if not isinstance(run, Run):
            return
        before, self._runs[key] = self._runs.get(key), run.state
        probe = self.pipelines[key.pipeline].probe(PROBE)
        if probe is not None and run.state is State.TRIGGERING and before is not State.TRIGGERING:
            self._check_start(run, probe)

    def _check_start(self, run: Run, probe: Probe) -> None:
        name, now = _name(probe, run), _now()
        told = {session: [each for each in all_ if each.at_s <= now] for session, all_ in self._told[name].items()}
        lag_s = self.plan.timing.fence_s + 60.0
        oldest_s = now - PROBE_TTL_S - lag_s
        known = run.started_on.get(PROBE)
        valid = [
            each
            for answers in told.values()
            for each in answers
            if each.is_pass and each.at_s >= oldest_s and content_hash(each.data or {}) == known
        ]
        what = f"run {run.key} is about to start, and no answer of {name} within {now - oldest_s:.0f} s allows it"
        self.verdicts.require(valid, Invariant.NO_START_ON_STALE_PROBE, what)
        if probe.run is ProbeRun.BEFORE_START:
            last = told.get(str(run.starter), [])[-2:]
            is_told = bool(last) and (last[-1].is_pass or (last[0].is_pass and last[-1].at_s > now - AT_ONCE_S))
            is_confirmed = is_told and last[-1].at_s >= now - lag_s
            what = f"run {run.key} is about to start, and {run.starter} was told {last} by {name}"
            self.verdicts.require(is_confirmed, Invariant.NO_START_ON_STALE_PROBE, what)


@dataclass(frozen=True, slots=True)
class Asker:
    """The way of one session to all of them."""

    evaluators: Evaluators
    session: SessionId

    def target(self, config: Mapping[str, Json], /) -> str:
        return f"sql:{config['path']}"

    async def ask(self, request: ProbeRequest, /) -> RawResponse | ProbeUnknown:
        return await self.evaluators.ask(request, self.session)


def _name(probe: Probe, run: Run) -> str:
    period = run.key.period
    path = str(probe.config["path"])
    return path.replace("${DATE}", str(period.date)).replace(
        "${HOUR}", "" if period.hour is None else f"{period.hour:02d}"
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
