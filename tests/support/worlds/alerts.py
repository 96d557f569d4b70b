"""Alerts on virtual time: workers that share a store and post to one fake Slack through the real SDK."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from consumers.alerts.chat import Chat
from consumers.alerts.pace import Admission, SharedPace
from consumers.alerts.rate_limited_chat import RateLimitedChat
from consumers.alerts.routing import OwnerOf, Routing, nobody, one_channel
from consumers.alerts.services import AlertServices
from consumers.alerts.slack import SlackChat
from consumers.alerts.threads import ChatAlerts
from consumers.delivery.retry import RetryPolicy
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import VirtualClock
from tests.support.fakes.remote_store import FaultyTables
from tests.support.fakes.slack import TOKEN, FakeSlack
from tests.support.worlds.stream import FULL_WAITS
from worker.core.model.events import Event, EventType
from worker.runtime.backoff import Backoff
from worker.store.repos.delivery.grouped_alerts import GroupedAlerts
from worker.store.repos.delivery.rates import Rates
from worker.store.repos.delivery.threads import Threads
from worker.store.repos.events import Events
from worker.store.sqlite.tables import SqliteTables

WHILE_DOWN = Backoff(attempts_max=7, first_s=2.0, longest_s=60.0, jitter=lambda: 1.0)
HOUR = 3600.0

FAILED = Event(
    id="e1",
    type=EventType.JOB_FAILED,
    at=NOON,
    pipeline="orders",
    schedule="daily",
    period="2026-03-03",
    message="exit code 3",
    detail={"version": 4, "actionHint": "look at the job's log"},
)


def an_event(event_id: str, event_type: str, version: int = 0, **changes: str) -> Event:
    detail = {**FAILED.detail, "version": version} if version else {}
    return replace(FAILED, id=event_id, type=event_type, detail=detail, **changes)


@dataclass
class AlertsWorld:
    clock: VirtualClock = field(default_factory=VirtualClock)
    routing: Routing = field(default_factory=lambda: one_channel("#alerts"))
    owner_of: OwnerOf = nobody
    token: str = TOKEN

    def __post_init__(self) -> None:
        self.slack = FakeSlack(self.clock)
        self.tables = FaultyTables(SqliteTables.in_memory(self.clock))
        self.threads = Threads(self.tables)
        self.rates = Rates(self.tables)

    def chat(self) -> Chat:
        return SlackChat(self._token, self.slack.session())

    def telling(self, chat: Chat | None = None, *, off_by_s: float = 0.0) -> AlertServices:
        """What a worker tells with, whose clock may be wrong."""
        clock = VirtualClock(off_by=timedelta(seconds=off_by_s)) if off_by_s else self.clock
        return AlertServices(
            line=RateLimitedChat(chat or self.chat(), clock, SharedPace(self.rates, clock), while_down=WHILE_DOWN),
            threads=self.threads,
            events=Events(self.tables),
            grouped=GroupedAlerts(self.tables),
            admission=Admission(self.rates, clock),
            routing=self.routing,
            owner_of=self.owner_of,
            tries=RetryPolicy(self.clock, self.tables.ping, FULL_WAITS),
            clock=clock,
        )

    def worker(self) -> ChatAlerts:
        """A worker's alerts: what it remembers is its own."""
        return ChatAlerts(self.telling())

    async def _token(self) -> str:
        return self.token
