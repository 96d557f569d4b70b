"""News of the console on DynamoDB: what a change costs and when it is seen, on an emulator."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.aws.emulators import RealWaits, make_tables, ministack, new_names, use_test_credentials
from tests.support.aws.wire import WireProxy
from tests.support.builders.cli_runs import key_of
from tests.support.clock.manual import ManualClock
from worker.core.model.events import Event, EventType
from worker.core.run.state import Outcome, Run, State
from worker.net.aws_client import ClientSettings
from worker.store.dynamodb.tables import DynamoTables
from worker.store.repos.events import event_write
from worker.store.repos.runs import Runs
from worker.web.live.mirror import Mirror
from worker.web.live.polled_source import INTERVAL_S, MOVING, SWEEP_S, PolledNews

pytestmark = [pytest.mark.xdist_group("aws-workers"), pytest.mark.timeout(120)]
NOW = datetime(2027, 3, 23, 6, 10, tzinfo=UTC)


async def test_news_of_dynamodb_are_seen_when_promised_and_read_no_more_than_promised() -> None:
    use_test_credentials()
    clock, server, asked = ManualClock(NOW), ministack(), Counter[str]()
    with WireProxy(server.port, observe=lambda operation, _asked, _answered: asked.update([operation])) as wire:
        tables = DynamoTables(new_names(), RealWaits(clock), ClientSettings(endpoint=wire.url, read_s=60.0))
        make_tables(server, tables.names)
        await tables.open()
        try:
            await _follow_changes(tables, clock, asked)
        finally:
            await tables.stop()
    assert "Scan" not in asked


async def _follow_changes(tables: DynamoTables, clock: ManualClock, asked: Counter[str]) -> None:
    runs, source, mirror = Runs(tables), PolledNews(tables, clock), Mirror()
    waiting = await runs.save(_run("orders"))
    async for _ in source.load(mirror):
        pass
    assert mirror.active["orders/stream/2027-03-22"].state == State.EVALUATING.value

    # Nothing has changed: the tails of the types that move a run, the configuration log and the sessions.
    clock.advance(timedelta(seconds=INTERVAL_S))
    asked.clear()
    await source.read(mirror)
    assert asked == {"Query": len(MOVING) + 2}

    # A change with an event is seen with the next reading.
    running = replace(waiting, state=State.POLLING, since=clock.now())
    waiting = await runs.save(running, event_write(_event(running, EventType.JOB_TRIGGERED, clock.now())))
    # A new run emits none: it is seen when the lists are read again.
    await runs.save(_run("stock"))
    clock.advance(timedelta(seconds=INTERVAL_S))
    await source.read(mirror)
    assert mirror.active["orders/stream/2027-03-22"].state == State.POLLING.value
    assert "stock/stream/2027-03-22" not in mirror.active
    clock.advance(timedelta(seconds=SWEEP_S))
    await source.read(mirror)
    assert mirror.active["stock/stream/2027-03-22"].state == State.EVALUATING.value

    # The end is an event too, and the run leaves one list for the other.
    ended = replace(waiting, state=State.COMPLETED, outcome=Outcome.SUCCEEDED, since=clock.now())
    await runs.save(ended, event_write(_event(ended, EventType.JOB_COMPLETED, clock.now())))
    clock.advance(timedelta(seconds=INTERVAL_S))
    await source.read(mirror)
    assert "orders/stream/2027-03-22" not in mirror.active
    assert mirror.ended["orders/stream/2027-03-22"].word == "completed"


def _run(pipeline: str) -> Run:
    return Run(
        key=key_of("2027-03-22", pipeline),
        run_id=f"run-{pipeline}",
        config_hash="h",
        created_at=NOW - timedelta(minutes=1),
        since=NOW - timedelta(minutes=1),
        timeout_at=NOW + timedelta(hours=4),
    )


def _event(run: Run, kind: EventType, at: datetime) -> Event:
    return Event(
        id=f"{kind}-{run.run_id}",
        type=kind,
        at=at,
        pipeline=run.key.pipeline,
        schedule=run.key.schedule,
        period=str(run.key.period),
        message="it moved",
    )
