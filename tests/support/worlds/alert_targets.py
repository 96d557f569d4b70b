"""Alert targets on virtual time: workers that share a store and send to one fake of each target."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from consumers.alerts.routing import OwnerOf, Routing, nobody, one_channel
from consumers.alerts.targets.http_post import KeptSecret
from consumers.alerts.targets.pagerduty import PagerDutyTarget
from consumers.alerts.targets.target import AlertTarget
from consumers.alerts.targets.teams import TeamsTarget
from consumers.alerts.targets.webhook import WebhookTarget
from tests.support.clock.virtual_time import VirtualClock
from tests.support.fakes.alert_targets import KEY, SECRET, FakeHttp, FakePagerDuty, FakeReceiver, FakeTeams
from tests.support.fakes.remote_store import FaultyTables
from worker.app.alert_targets import PAGERDUTY, TEAMS, WEBHOOK, AlertTargets, alert_targets
from worker.core.model.events import Event
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.delivery.target_alerts import TargetAlerts
from worker.store.sqlite.tables import SqliteTables

ALL = (WEBHOOK, PAGERDUTY, TEAMS)


@dataclass
class TargetsWorld:
    clock: VirtualClock = field(default_factory=VirtualClock)
    routing: Routing = field(default_factory=lambda: one_channel(""))
    owner_of: OwnerOf = nobody
    names: Sequence[str] = ALL

    def __post_init__(self) -> None:
        self.tables = FaultyTables(SqliteTables.in_memory(self.clock))
        self.pagerduty = FakePagerDuty(self.clock)
        self.teams = FakeTeams(self.clock)
        self.receiver = FakeReceiver(self.clock)
        self.http = FakeHttp(self.clock, pagerduty=self.pagerduty, teams=self.teams, receiver=self.receiver).client()
        self.pagerduty_keys = {"": KEY}

    def targets(self) -> Mapping[str, Mapping[str, AlertTarget]]:
        made: dict[str, dict[str, AlertTarget]] = {
            WEBHOOK: {
                "": WebhookTarget(self.http, kept("https://receiver.test/in/hidden-path"), kept(SECRET), self.clock)
            },
            PAGERDUTY: {
                owner: PagerDutyTarget(self.http, kept(key), api="https://pagerduty.test/v2/enqueue")
                for owner, key in self.pagerduty_keys.items()
            },
            TEAMS: {"": TeamsTarget(self.http, kept("https://teams.test/workflows/1?sig=good"))},
        }
        return {name: made[name] for name in self.names}

    def worker(self) -> AlertTargets:
        """What a worker takes and sends with."""
        return alert_targets(
            self.targets(),
            tables=self.tables,
            clock=self.clock,
            routing=self.routing,
            owner_of=self.owner_of,
        )

    @asynccontextmanager
    async def running(self, number: int = 1) -> AsyncGenerator[list[AlertTargets]]:
        workers = [self.worker() for _ in range(number)]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(task()) for each in workers for task in each.background_tasks.values()]
            yield workers
            for task in running:
                task.cancel()

    async def deliver(self, *events: Event, seconds: float = 120.0) -> None:
        """Take events on one worker, and let it send for a while."""
        async with self.running() as [worker]:
            for event in events:
                await worker.take(event)
            await self.clock.sleep(seconds)

    async def waiting(self) -> int:
        alerts = TargetAlerts(self.tables)
        return sum([len(await alerts.first(lane, 10_000)) for lane in (*ALL, "pagerduty.payments", "slack")])

    async def letters(self, source: str) -> list[DeadLetter]:
        return await DeadLetters(self.tables).list(source)


def kept(value: str) -> KeptSecret:
    async def read() -> str:
        return value

    return KeptSecret(read, "INTERLOCK_TEST")
