"""Real workers on one installation, behind a wire that is watched and can refuse everything."""

import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests.support.aws.emulators import ministack
from tests.support.aws.wire import Observe, WireProxy, nobody
from tests.support.worlds.installation import (
    REGION,
    Installation,
    client,
    endpoint_of,
    executions_of,
    install,
    make_state_machine,
    write_pipeline,
)
from tests.support.worlds.live_worker import LiveWorker
from tests.support.worlds.observer import ORDERS, Onlooker, session_of, wait_until
from worker.config.deploy import deploy
from worker.config.load import load_text
from worker.config.store_setting import GROUP
from worker.core.model import keys
from worker.core.model.keys import RunKey, SessionId
from worker.core.run.state import start_token
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables
from worker.store.repos.leases import Lease, Leases
from worker.store.repos.sessions import Session, Sessions

PATIENCE_S: Final = 100.0  # however busy the machine is: this is about that something comes, not about when
CONTROL: Final = "stream.control"  # whoever reads it hears of sensors


@dataclass(slots=True)
class Receipts:
    """Which messages queues gave out, and how often each; told by the wire."""

    count: Counter[str] = field(default_factory=Counter[str])

    def observe(self, operation: str, _asked: bytes, answered: bytes) -> None:
        if operation == "ReceiveMessage" and answered:
            self.count.update(message["MessageId"] for message in json.loads(answered).get("Messages", ()))


@dataclass(slots=True)
class Departures:
    """Which leases were released and which sessions ended, in the order of their writes; told by the wire."""

    released: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])  # session, sort key of the lease
    ended: dict[str, int] = field(default_factory=dict[str, int])  # how many leases had been released by then

    def observe(self, operation: str, asked: bytes, answered: bytes) -> None:
        is_about_group = any(f'"{begin}'.encode() in asked for begin in (keys.LEASE, keys.SESSION))
        if not is_about_group or b"__type" in answered:  # a refused write
            return
        request = json.loads(asked)
        self._note(operation.removesuffix("Item"), request)
        for each in request.get("TransactItems", ()):
            for action, write in each.items():
                self._note(action, write)

    def _note(self, action: str, write: dict[str, Any]) -> None:
        sort_key = write.get("Key", {}).get("SK", {}).get("S", "")
        if action == "Delete" and sort_key.startswith(keys.SESSION):
            self.ended.setdefault(sort_key.removeprefix(keys.SESSION), len(self.released))
        if action == "Update" and sort_key.startswith(keys.LEASE):
            is_release = "REMOVE" in write["UpdateExpression"] and "owner" in write["ExpressionAttributeNames"].values()
            values = [each["S"] for each in write["ExpressionAttributeValues"].values() if "S" in each]
            self.released += [(value, sort_key) for value in values if is_release]

    def released_before_its_end(self, session: str) -> set[str]:
        """The sort keys of the leases that a session released before it ended."""
        return {lease for owner, lease in self.released[: self.ended[session]] if owner == session}


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    place: Installation
    machine: str
    endpoint: str  # of the server itself: what onlookers ask is neither counted nor refused
    wire: WireProxy
    receipts: Receipts
    tables: DynamoTables
    onlooker: Onlooker
    workers: list[LiveWorker]
    recruit: Callable[[str], LiveWorker]

    # --- who does what ------------------------------------------------------------------------------------------------

    async def leases(self) -> list[Lease]:
        return list(await Leases(self.tables, GROUP).list())

    async def sessions(self) -> list[Session]:
        return list(await Sessions(self.tables, GROUP).list())

    async def readers(self) -> set[SessionId]:
        """The sessions that hold shards of the control table."""
        return {lease.owner for lease in await self.leases() if lease.stream == CONTROL and lease.owner is not None}

    async def reader_and_other(self) -> tuple[LiveWorker, LiveWorker]:
        """The worker that hears of sensors, and one that does not."""
        await wait_until(self._is_read, within_s=PATIENCE_S, workers=self.workers)
        [reading] = await self.readers()
        [reader] = [worker for worker in self.alive if session_of(worker) == reading]
        return reader, next(worker for worker in self.alive if worker is not reader)

    @property
    def alive(self) -> list[LiveWorker]:
        return [worker for worker in self.workers if worker.process.poll() is None]

    async def _is_read(self) -> bool:
        have_begun = all(worker.has_logged('"session.began"') for worker in self.alive)
        return have_begun and bool(await self.readers() & {session_of(worker) for worker in self.alive})

    # --- what came of it ----------------------------------------------------------------------------------------------

    async def complete(self, keys: Sequence[RunKey]) -> None:
        await wait_until(lambda: self.onlooker.are_completed(keys), within_s=PATIENCE_S, workers=self.workers)

    async def assert_each_ran_once(self, keys: Sequence[RunKey]) -> None:
        """Each was started by one request that the target took, in one attempt, and is told of once."""
        runs = await self.onlooker.runs(keys)
        assert {run.attempt for run in runs} == {1}
        started = Counter(await executions_of(self.endpoint, self.machine))
        assert started == Counter(start_token(run.run_id, 1) for run in runs)
        assert await self.onlooker.completions(keys) == Counter(str(key.period) for key in keys)

    # --- queues -------------------------------------------------------------------------------------------------------

    async def send_alerts(self, bodies: Sequence[str]) -> None:
        async with client("sqs", self.endpoint) as sqs:
            for body in bodies:
                await sqs.send_message(QueueUrl=self.place.alerts_queue, MessageBody=body)

    async def alerts_left(self) -> int:
        """Messages in the queue, in anyone's hands or none's."""
        async with client("sqs", self.endpoint) as sqs:
            names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
            asked = await sqs.get_queue_attributes(QueueUrl=self.place.alerts_queue, AttributeNames=names)
        return sum(int(asked["Attributes"][name]) for name in names)


@asynccontextmanager
async def crew(at: Path, *names: str, timing: str, observe: Observe = nobody) -> AsyncGenerator[Crew]:
    """Workers by these names, and whoever is recruited later; all are ended afterwards."""
    receipts, server = Receipts(), ministack()
    endpoint = endpoint_of(server)

    def observe_all(operation: str, asked: bytes, answered: bytes) -> None:
        receipts.observe(operation, asked, answered)
        observe(operation, asked, answered)

    async with AsyncExitStack() as stack:
        wire = stack.enter_context(WireProxy(server.port, observe=observe_all))
        place = await install(wire.url)
        machine = await make_state_machine(endpoint, seconds=1)
        tables = DynamoTables(place.names, SystemClock(), ClientSettings(region=REGION, endpoint=endpoint))
        await tables.start()
        stack.push_async_callback(tables.stop)
        write_pipeline(at / "pipelines", ORDERS, machine)
        loaded = load_text((at / "pipelines" / f"{ORDERS}.yaml").read_text())
        assert loaded.pipeline is not None, loaded.problems
        await deploy(tables, loaded.pipeline, SystemClock())
        # No chat: what people are told is in the logs.
        variables = {**place.variables(slack_api=""), "INTERLOCK_SLACK_TOKEN": ""}
        workers: list[LiveWorker] = []

        def recruit(name: str) -> LiveWorker:
            workers.append(LiveWorker(at, name, timing=timing, **variables))
            return workers[-1]

        stack.callback(_end, workers)
        for name in names:
            recruit(name)
        yield Crew(
            place=place,
            machine=machine,
            endpoint=endpoint,
            wire=wire,
            receipts=receipts,
            tables=tables,
            onlooker=Onlooker(tables=tables, sensor="landed", data={"rows": 12}),
            workers=workers,
            recruit=recruit,
        )


def _end(workers: Sequence[LiveWorker]) -> None:
    for worker in workers:
        if worker.process.poll() is None:
            worker.kill()


# --- what logs say ----------------------------------------------------------------------------------------------------


def lines(worker: LiveWorker, event: str) -> list[dict[str, Any]]:
    said = [json.loads(line) for line in worker.log.read_text().splitlines() if f'"{event}"' in line]
    return [line for line in said if line["event"] == event]


def created_at(*workers: LiveWorker) -> list[datetime]:
    """When each run was created, by whichever of the workers, in order."""
    told = [line for worker in workers for line in lines(worker, "fact.handled") if "Create" in line["effects"]]
    return sorted(datetime.fromisoformat(line["at"]) for line in told)
