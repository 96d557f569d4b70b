"""The mirror that followed any history equals one that is built from the rows as they are, for both sources of news."""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from tests.support.clock.manual import ManualClock
from worker.config.store_setting import GROUP
from worker.core.model.events import Event, EventType
from worker.core.model.keys import RunKey, SessionId
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import Outcome, Pause, Run, State
from worker.core.sla.state import SlaWatch, Verdict
from worker.core.time.periods import Period
from worker.store.repos.config_log import ConfigChange, ConfigLog, ConfigLogEntry
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.events import event_write
from worker.store.repos.pauses import Pauses
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs, run_key
from worker.store.repos.sessions import Sessions
from worker.store.repos.sla_watches import SlaWatches
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Delete, TableName
from worker.web.live.change_source import ChangeFeedNews
from worker.web.live.mirror import Mirror
from worker.web.live.polled_source import PolledNews
from worker.web.live.source import NewsSource
from worker.web.live.updates import LiveUpdates

SOURCES = ["changes", "polled"]
MINUTE = timedelta(minutes=1)
CONFIG = "pipeline: {{id: {name}, owner: team-{number}}}\njob: {{type: command, config: {{command: load}}}}\n"
ENDS = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED)


@dataclass
class History:
    """Random writes as workers, producers and people make them; each is followed by the event that it emits."""

    tables: SqliteTables
    clock: ManualClock
    chance: random.Random
    runs: dict[RunKey, Run] = field(default_factory=dict[RunKey, Run])
    watches: dict[RunKey, SlaWatch] = field(default_factory=dict[RunKey, SlaWatch])
    count: int = 0

    async def step(self) -> None:
        self.clock.advance(timedelta(seconds=self.chance.choice((0.001, 1, 7, 90))))
        self.count += 1
        await self.chance.choice(
            (self.move, self.move, self.move, self.deadline, self.config, self.pause, self.delete, self.told, self.rest)
        )()

    def _key(self) -> RunKey:
        period = Period.parse(f"2026-02-{self.chance.randint(20, 24)}")
        assert period is not None
        return RunKey(PipelineId(f"p{self.chance.randint(1, 4)}"), ScheduleId("stream"), period)

    async def move(self) -> None:
        """Begin a run, or move one on: into another state, to its end, or back to waiting by a rerun."""
        key, now = self._key(), self.clock.now()
        run = self.runs.get(key)
        if run is None:
            run = Run(key=key, run_id=f"r{self.count}", config_hash="h", created_at=now, since=now, timeout_at=now)
        elif run.is_ended:
            run = replace(run, state=State.EVALUATING, outcome=None, since=now, attempt=run.attempt + 1)
        elif self.chance.random() < 0.4:
            outcome = self.chance.choice(ENDS)
            state = State.COMPLETED if outcome is Outcome.SUCCEEDED else State.FAILED_FINAL
            run = replace(
                run, state=state, outcome=outcome, since=now, started_at=now - MINUTE, reason=f"n{self.count}"
            )
        else:
            states = (State.TRIGGERING, State.POLLING, State.STOPPING)
            owner = SessionId(f"w{self.chance.randint(1, 2)}")
            run = replace(run, state=self.chance.choice(states), since=now, owner=owner, window_ends_at=now + MINUTE)
        self.runs[key] = await Runs(self.tables).save(run, event_write(self._event(key, EventType.JOB_TRIGGERED)))

    async def deadline(self) -> None:
        key, now = self._key(), self.clock.now()
        watch = self.watches.get(key)
        event = EventType.SLA_WARNING
        if watch is None:
            watch = SlaWatch(key=key, config_hash="h", since=now, warning_at=now + MINUTE, breach_at=now + 2 * MINUTE)
        elif watch.verdict is None and watch.warned_at is None:
            watch = replace(watch, warned_at=now, since=now)
        elif watch.verdict is None:
            is_met = self.chance.random() < 0.5
            watch = replace(watch, verdict=Verdict.MET if is_met else Verdict.BREACHED, since=now)
            event = EventType.SLA_MET if is_met else EventType.SLA_BREACH
        else:
            return
        self.watches[key] = await SlaWatches(self.tables).save(watch, event_write(self._event(key, event)))

    async def config(self) -> None:
        name = PipelineId(f"p{self.chance.randint(1, 6)}")
        change = self.chance.choice((ConfigChange.CHANGED, ConfigChange.CHANGED, ConfigChange.REMOVED))
        if change is ConfigChange.REMOVED:
            await Pipelines(self.tables).remove(name)
        else:
            text = CONFIG.format(name=name, number=self.count) if self.chance.random() < 0.8 else ": no [yaml"
            await Pipelines(self.tables).put(name, text)
        entry = ConfigLogEntry(id=f"c{self.count}", pipeline=name, change=change)
        await ConfigLog(self.tables).append(entry, self.clock.now())

    async def pause(self) -> None:
        name, pauses = PipelineId(f"p{self.chance.randint(1, 6)}"), Pauses(self.tables)
        if await pauses.load(name):
            await pauses.remove(name)
        else:
            await pauses.put(name, Pause("why", self.chance.choice((None, self.clock.now() + 10 * MINUTE))))
        event = Event(id=f"e{self.count}", type=EventType.OPERATOR_ACTION, at=self.clock.now(), pipeline=name)
        await self.tables.commit(event_write(event))

    async def delete(self) -> None:
        ended = [key for key, run in self.runs.items() if run.is_ended]
        if ended:
            key = self.chance.choice(ended)
            del self.runs[key]
            event = event_write(self._event(key, EventType.OPERATOR_ACTION))
            await self.tables.commit(Delete(TableName.CONTROL, run_key(key)), event)

    async def told(self) -> None:
        types = (
            EventType.SCHEDULE_MISSED,
            EventType.SENSOR_DEADLINE_EXPIRED,
            EventType.CONFIG_REJECTED,
            EventType.CONFIG_ACCEPTED,
            EventType.WATCHDOG_DEGRADED,
            EventType.WATCHDOG_RECOVERED,
        )
        event = replace(self._event(self._key(), self.chance.choice(types)), detail={"checks": ["rollups"]})
        await self.tables.commit(event_write(event))

    async def rest(self) -> None:
        letter = DeadLetter(id=f"l{self.count}", source="sensors", at=self.clock.now(), reason="no")
        await DeadLetters(self.tables).put(letter, b"{}", now=self.clock.now())
        await Sessions(self.tables, GROUP).register(SessionId(f"s{self.count}"), "1", at=self.clock.now())

    def _event(self, key: RunKey, event_type: EventType) -> Event:
        return Event(
            id=f"e{self.count}",
            type=event_type,
            at=self.clock.now(),
            pipeline=key.pipeline,
            schedule=key.schedule,
            period=str(key.period),
            message=f"message {self.count}",
        )


def content(mirror: Mirror) -> dict[str, object]:
    return {
        "catalogue": mirror.catalogue,
        "ids": mirror.ids,
        # A pause of a pipeline that is not listed is shown nowhere, and no list leads to it.
        "paused": {name: until for name, until in mirror.paused.items() if name in mirror.catalogue},
        "active": mirror.active,
        "watches": mirror.watches,
        "ended": mirror.ended,
        "failed": mirror.failed,
        "breached": mirror.breached,
        "missed": mirror.missed,
        "rejected": mirror.rejected,
        "watchdog": mirror.watchdog,
        "hours": +Counter(mirror.hours),
        "sessions": mirror.sessions,
        "letters": mirror.letters,
        "of pipelines": {name: (mirror.active_of(name), mirror.ended_of(name)) for name in ("p1", "p2", "p3", "p4")},
        "history": [mirror.history(f"p{number}", "stream") for number in range(1, 5)],
    }


def source_of(kind: str, tables: SqliteTables, clock: ManualClock) -> NewsSource:
    return ChangeFeedNews(tables, tables, clock) if kind == "changes" else PolledNews(tables, clock)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("seed", range(6))
async def test_a_mirror_that_followed_a_history_equals_a_new_one(kind: str, seed: int) -> None:
    clock, chance = ManualClock(), random.Random(seed)
    tables = SqliteTables.in_memory(clock)
    await tables.start()
    history = History(tables, clock, chance)
    followed = LiveUpdates(source_of(kind, tables, clock), clock)
    for _ in range(chance.choice((0, 60))):
        await history.step()

    for _ in range(150):
        await history.step()
        if chance.random() < 0.2:
            await followed.fresh()
    clock.advance(2 * MINUTE)  # the lists are read again
    await followed.fresh()

    new = LiveUpdates(source_of("changes", tables, clock), clock)
    assert content(await followed.fresh()) == content(await new.fresh())
    assert len(followed.mirror.ended) + len(followed.mirror.active) > 5
    await tables.stop()


@pytest.mark.parametrize("kind", SOURCES)
async def test_a_change_during_the_first_reading_is_not_lost(kind: str) -> None:
    clock, chance = ManualClock(), random.Random(7)
    tables = SqliteTables.in_memory(clock)
    await tables.start()
    history = History(tables, clock, chance)
    for _ in range(100):
        await history.step()
    source, mirror = source_of(kind, tables, clock), Mirror()

    async for _ in source.load(mirror):
        for _ in range(5):
            await history.step()
        await source.read(mirror)
    clock.advance(2 * MINUTE)
    await source.read(mirror)
    mirror.expire(clock.now().timestamp())

    new = LiveUpdates(source_of("changes", tables, clock), clock)
    assert content(mirror) == content(await new.fresh())
    await tables.stop()
