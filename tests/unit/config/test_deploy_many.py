"""Many pipelines deployed at once: few requests, in an order that a crash leaves sound, and again after an error."""

import asyncio
import io
import json
from dataclasses import replace
from datetime import timedelta

import pytest
from rich.console import Console

from tests.simulation.memory_tables import MemoryTables
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from worker.cli.commands.push import PipelineChange, PushStatus, show_stopped, write_all
from worker.cli.terminal.console import Screen
from worker.config.deploy import GROUP_BYTES_MAX, GROUP_MAX, GROUP_TRIES, GROUPS_AT_ONCE, deploy, deploy_many
from worker.config.load import load_text
from worker.config.render import config_hash, to_json
from worker.core.errors import Rejected, RetryLater
from worker.core.model import keys
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.store.repos.config_log import ConfigLog
from worker.store.repos.deployments import Deployments
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Write
from worker.store.tail import Tail

TEXT = 'pipeline: {id: NAME}\nschedule: {cron: "0 6 * * *"}\njob: {type: command, config: {command: load}}\n'


class Store(MemoryTables):
    """Counts commits, and refuses what the test says. Each takes a moment, so that several are under way."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.commits: list[tuple[Write, ...]] = []
        self.at_once = self.most_at_once = 0
        self.broken: set[str] = set()  # pipelines whose CONFIG cannot be written
        self.failures = 10**9
        self.error: Exception = RetryLater("throttled")

    async def commit(self, *writes: Write) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.clock.sleep(0.01)
        self.at_once -= 1
        self.commits.append(writes)
        named = {keys.pipeline_of(write.key.pk) for write in writes if write.key.sk == keys.CONFIG}
        if named & self.broken and self.failures:
            self.failures -= 1
            raise self.error
        await super().commit(*writes)


def pipelines(count: int, text: str = TEXT) -> list[Pipeline]:
    return [_loaded(text.replace("NAME", f"p{number:04d}")) for number in range(count)]


def _loaded(text: str) -> Pipeline:
    pipeline = load_text(text).pipeline
    assert pipeline is not None
    return pipeline


async def told(store: Store) -> list[str]:
    now = store.clock.now()
    entries, _ = await ConfigLog(store).read(Tail.starting(now - timedelta(hours=1)), now, limit=10_000)
    return [entry.pipeline for entry in entries]


async def assert_deployed(store: Store, wanted: list[Pipeline]) -> None:
    stored = await Pipelines(store).get_many([each.id for each in wanted])
    assert {name: each.text for name, each in stored.items()} == {each.id: to_json(each) for each in wanted}
    assert [await Pipelines(store).version(each.id, config_hash(each)) for each in wanted] == [
        to_json(each) for each in wanted
    ]
    assert len(await Deployments(store).load([each.id for each in wanted])) == len(wanted)


@on_virtual_time
async def test_many_pipelines_take_one_request_each_and_a_few_for_each_group() -> None:
    store, wanted = Store(VirtualClock()), pipelines(4 * GROUP_MAX)
    done: list[PipelineId] = []

    await deploy_many(store, wanted, store.clock, done.append)

    await assert_deployed(store, wanted)
    assert sorted(done) == [each.id for each in wanted]
    assert sorted(await told(store)) == [each.id for each in wanted]
    assert len(store.commits) == len(wanted) + 2 * 4
    assert store.most_at_once <= GROUPS_AT_ONCE * GROUP_MAX
    # The CONFIG row is never inside a transaction: a producer's plain write would meet it.
    assert all(len(writes) == 1 for writes in store.commits if any(w.key.sk == keys.CONFIG for w in writes))


@on_virtual_time
async def test_a_pipeline_deployed_in_a_group_has_the_same_rows_as_one_deployed_alone() -> None:
    clock = VirtualClock()
    alone, grouped, [pipeline] = Store(clock), Store(clock), pipelines(1)

    await deploy(alone, pipeline, clock)
    await deploy_many(grouped, [pipeline], clock, lambda _: None)

    def rows(store: Store) -> set[str]:
        return {f"{write.key.pk} {write.key.sk}" for writes in store.commits for write in writes if "#" in write.key.pk}

    assert rows(alone) == rows(grouped)


@on_virtual_time
async def test_versions_that_are_there_already_do_not_keep_their_group_from_being_deployed() -> None:
    store, first = Store(VirtualClock()), pipelines(10)
    await deploy_many(store, first, store.clock, lambda _: None)
    changed = [replace(each, description="changed") for each in first]
    await deploy_many(store, changed, store.clock, lambda _: None)

    await deploy_many(store, first, store.clock, lambda _: None)  # back to the version before

    await assert_deployed(store, first)


@on_virtual_time
async def test_a_store_that_is_throttled_for_a_moment_only_delays_a_push() -> None:
    store, wanted = Store(VirtualClock()), pipelines(GROUP_MAX)
    store.broken, store.failures = {"p0003", "p0004"}, 3
    done: list[PipelineId] = []

    await deploy_many(store, wanted, store.clock, done.append)

    await assert_deployed(store, wanted)
    assert sorted(done) == [each.id for each in wanted]
    assert set(await told(store)) == {each.id for each in wanted}


@pytest.mark.parametrize("error", [RetryLater("throttled"), Rejected("too large")])
@on_virtual_time
async def test_after_an_error_the_report_is_exact_and_deploying_again_continues(error: Exception) -> None:
    store, wanted = Store(VirtualClock()), pipelines(12 * GROUP_MAX)
    store.broken, store.error = {"p0030"}, error
    done: list[PipelineId] = []

    with pytest.raises(type(error)):
        await deploy_many(store, wanted, store.clock, done.append)
    in_force = await Pipelines(store).get_many([each.id for each in wanted])

    assert set(done) == set(in_force)
    assert GROUP_MAX <= len(done) < len(wanted)
    store.broken = set()
    await deploy_many(store, [each for each in wanted if each.id not in in_force], store.clock, done.append)
    await assert_deployed(store, wanted)


@on_virtual_time
async def test_large_pipelines_make_small_groups() -> None:
    store = Store(VirtualClock())
    large = [replace(each, description="x" * (GROUP_BYTES_MAX // 3)) for each in pipelines(6)]

    await deploy_many(store, large, store.clock, lambda _: None)

    sizes = [len(writes) for writes in store.commits if any("CONFIGVER" in write.key.sk for write in writes)]
    assert max(sizes) <= 2 * 2  # the versions and the deployments of two
    await assert_deployed(store, large)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_push_that_stops_names_what_was_not_written(*, as_json: bool) -> None:
    clock = VirtualClock()
    out, err = io.StringIO(), io.StringIO()
    screen = Screen(out=Console(file=out, width=10_000), err=Console(file=err, width=10_000))

    @on_virtual_time
    async def scenario() -> None:
        store, wanted = Store(clock), pipelines(2 * GROUP_MAX)
        store.broken = {"p0030"}
        changes = [PipelineChange(pipeline=each, status=PushStatus.NEW) for each in wanted]
        began = clock.monotonic()
        with pytest.raises(RetryLater):
            await write_all(screen, store, clock, changes, as_json=as_json)
        assert clock.monotonic() - began < 60
        assert len(store.commits) > GROUP_TRIES.attempts_max

    scenario()

    assert "49 of 50 pipelines written; not confirmed: p0030; push again to continue" in err.getvalue()
    said = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [each["id"] for each in said if not each["written"]] == (["p0030"] if as_json else [])
    assert len(said) == (50 if as_json else 0)


def test_only_a_terminal_shows_a_bar() -> None:
    shown: dict[bool, str] = {}
    for is_terminal in (True, False):
        err = io.StringIO()
        screen = Screen(err=Console(file=err, force_terminal=is_terminal, width=100))
        wanted = [PipelineChange(pipeline=each, status=PushStatus.NEW) for each in pipelines(3)]

        @on_virtual_time
        async def scenario(screen: Screen = screen, wanted: list[PipelineChange] = wanted) -> None:
            store = Store(VirtualClock())
            await write_all(screen, store, store.clock, wanted, as_json=True)
            await asyncio.sleep(0)

        scenario()
        shown[is_terminal] = err.getvalue()

    assert "pushing" in shown[True]
    assert shown[False] == ""


def test_a_push_that_fails_after_all_was_written_names_nothing_to_push_again() -> None:
    err = io.StringIO()
    changes = [PipelineChange(pipeline=each, status=PushStatus.NEW) for each in pipelines(2)]

    show_stopped(
        Screen(err=Console(file=err, width=10_000)), changes, {each.pipeline.id for each in changes}, as_json=False
    )

    assert err.getvalue() == "2 of 2 pipelines written; the workers notice them by themselves\n"
