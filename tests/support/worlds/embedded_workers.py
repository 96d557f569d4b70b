"""Whole workers as `interlock run` wires them, on one store and virtual time."""

from dataclasses import dataclass, field, replace

from tests.support.clock.virtual_time import Host, VirtualClock
from tests.support.fakes.runner import FakeRunner
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, run_key
from worker.app.dependencies import WorkerDeps
from worker.app.embedded import embedded_deps
from worker.app.session import SessionWork
from worker.app.worker import LEASED
from worker.config.deploy import deploy
from worker.config.load import load_text
from worker.config.roles import ALL_ROLES, Role
from worker.config.store_setting import GROUP
from worker.core.model.events import Event
from worker.core.model.pipeline import JobType
from worker.core.run.state import Run, State
from worker.jobs.runner import Succeeded
from worker.membership.heartbeat_threads import TaskBeater
from worker.membership.sessions import GroupSettings, Member, Membership, session_ids
from worker.runtime.concurrency import TrackedTaskGroup
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.sqlite.tables import SqliteTables

RUN = run_key()


@dataclass
class Crew:
    """Workers on one store, each on a host of its own, and the console they share."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    runner: FakeRunner = field(default_factory=FakeRunner)
    told: list[Event] = field(default_factory=list[Event])

    def __post_init__(self) -> None:
        self.store = SqliteTables.in_memory(self.clock)

    async def tell(self, event: Event) -> None:
        self.told.append(event)

    def deps(self) -> WorkerDeps:
        return embedded_deps(self.store, self.tell, {JobType.COMMAND: self.runner}, self.clock)

    def worker(self, name: str, *roles: Role) -> tuple[Host, Membership]:
        """Begin a worker that has these roles, or all of them."""
        chosen = frozenset(roles) or ALL_ROLES
        deps = replace(self.deps(), roles=chosen)

        async def work(member: Member) -> None:
            async with TrackedTaskGroup() as tasks:
                session = SessionWork(deps, member, tasks)
                await session.begin()
                await member.stopping.wait()
                await session.finish()

        host = Host(name)
        membership = Membership(
            GroupSettings(name=GROUP, program="test", roles=chosen & LEASED),
            tables=self.store,
            beater=TaskBeater(self.store),
            clock=self.clock,
            new_session_id=session_ids(name),
        )
        host.start(membership.serve(work))
        return host, membership

    async def deployed(self) -> None:
        pipeline = load_text(CONFIG, file="orders.yaml").pipeline
        assert pipeline is not None
        await deploy(self.store, pipeline, self.clock)

    async def sensor(self, key: str, day: str = DAY, **data: int | str) -> None:
        await Sensors(self.store).put(ORDERS, f"{key}#{day}", data)

    async def ready(self, day: str = DAY) -> None:
        await self.sensor("count", day, rows=120)
        await self.sensor("ready", day, status="done")

    async def run(self, day: str = DAY) -> Run | None:
        found = await Runs(self.store).load(run_key(day))
        return found if isinstance(found, Run) else None

    async def state(self, day: str = DAY) -> State | None:
        run = await self.run(day)
        return None if run is None else run.state

    def finish_jobs(self) -> None:
        for token in self.runner.jobs:
            self.runner.jobs[token] = Succeeded(self.clock.now())


def told_of(events: list[Event], event_type: str) -> int:
    return len({event.id for event in events if event.type == event_type})
