"""The demo's made-up runs: like those of a worker, marked, at any time of day."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.clock.manual import ManualClock
from worker.cli.demo.demo import free_address
from worker.cli.demo.folder import SCRIPT
from worker.cli.demo.history import write_history
from worker.cli.demo.past_runs import past_runs, unusual_runs
from worker.core.errors import ConfigError
from worker.core.model.pipeline import PipelineId
from worker.core.sla.state import Verdict
from worker.store.repos.pipelines import Pipelines
from worker.store.sqlite.tables import SqliteTables
from worker.web.addresses import DEFAULT_LISTEN
from worker.web.live.sections import AttentionFinder, AttentionKind
from worker.web.live.updates import open_updates

TIMES = [datetime(2027, 3, day, hour, 7, tzinfo=UTC) for day, hour in ((23, 0), (23, 12), (23, 23), (28, 1), (22, 6))]


@pytest.mark.parametrize("now", TIMES, ids=str)
def test_every_run_ended_before_now_and_has_its_events_in_order(now: datetime) -> None:
    made = [*past_runs(now), *unusual_runs(now)]

    assert len({each.run.key for each in made}) == len(made)
    for each in made:
        run = each.run
        assert run.origin == "demo"
        assert run.created_at <= (run.started_at or run.since) <= run.since < now, run.key
        assert all(event.detail["demo"] is True and event.at <= now for event in each.events)
        assert len({event.id for event in each.events}) == len(each.events)
        story = [event.at for event in each.events if "SLA" not in event.type]
        assert story == sorted(set(story)), "lists order events by time, so none may share one"
        if each.watch is not None and each.watch.verdict is Verdict.MET:
            assert each.watch.breach_at is not None
            assert run.since <= each.watch.breach_at


@pytest.mark.parametrize("now", TIMES, ids=str)
async def test_the_store_holds_a_breach_and_a_failure(now: datetime) -> None:
    clock = ManualClock(now)
    tables = SqliteTables.in_memory(clock)
    await tables.start()
    with pytest.raises(ConfigError, match="push it first"):
        await write_history(tables, now)
    for file in sorted((SCRIPT / "pipelines").iterdir()):
        await Pipelines(tables).put(PipelineId(Path(file).stem), file.read_text())

    runs = await write_history(tables, now)
    found = await AttentionFinder(clock).find(await open_updates(tables, clock, feed=tables).fresh())
    await tables.stop()

    assert runs > 200
    listed = {kind: [each.name.pipeline for each in items] for kind, items in found.sections.items()}
    assert listed[AttentionKind.BREACHED] == ["fraud-scores"]
    assert listed[AttentionKind.FAILED] == ["ledger-close"]


def test_the_console_takes_another_port_if_its_own_is_taken() -> None:
    import socket

    host, _, port = DEFAULT_LISTEN.partition(":")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((host, int(port)))
            taken.listen()
        except OSError:
            pass  # something else has it already
        found = free_address()

    assert found.startswith(f"{host}:")
    assert found != DEFAULT_LISTEN
