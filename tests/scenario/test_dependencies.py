"""B after A: what the end of a run does to the runs that depend on it."""

from consumers.alerts import text
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import Fault, FaultyTables, on_commit
from tests.support.worlds.dependencies import (
    FAILED,
    a_chain,
    after,
    attempt_of,
    key_of,
    push,
    ready,
    rerun,
    root,
    run_of,
    state_of,
    told,
)
from tests.support.worlds.engine import DAY, World
from worker.config.deploy import withdraw
from worker.config.versions import Unusable, Version
from worker.core.model.keys import cycle_mark_sk
from worker.core.model.pipeline import PipelineId
from worker.core.run.facts import Origin, RunTriggered
from worker.core.run.state import Pause, State
from worker.engine.root_causes import BLOCKED_MAX, NAMED_MAX
from worker.jobs.runner import Running, Succeeded
from worker.operations.explain.explanation import Gate, GateFinding, GateStatus
from worker.operations.explain.gates import explain
from worker.operations.explain.load import SnapshotLoader
from worker.operations.operator_actions import Requester
from worker.operations.runs.requests import RerunSpec, RunRequests
from worker.store.repos.delivery.threads import ThreadKey
from worker.store.repos.marks import Marks
from worker.store.repos.pauses import Pauses
from worker.store.table import Change, TableName

HOURS = [f"{DAY}T{hour:02d}" for hour in range(24)]


@on_virtual_time
async def test_a_run_is_created_when_its_upstream_completes_and_knows_what_it_started_on() -> None:
    world = await a_chain(root("a"), after("b", ["a"]), after("c", ["b"]))
    async with world.worker():
        await ready(world, "a", DAY)
        await world.wait(minutes=1)

    last, middle = await run_of(world, f"c/{DAY}"), await run_of(world, f"b/{DAY}")
    assert last is not None
    assert last.state is State.COMPLETED
    assert last.origin == "upstream"
    assert last.path == ("a", "b")
    assert middle is not None
    assert last.started_after == {f"b/stream/{DAY}": f"{middle.run_id[:8]}.1"}


@on_virtual_time
async def test_the_end_of_a_run_is_looked_at_only_if_another_pipeline_may_depend_on_it() -> None:
    world = await a_chain(root("a"), root("b"), after("c", ["a"]))
    async with world.worker() as worker:
        for name in ("a", "b"):
            await ready(world, name, DAY)
        await world.wait(seconds=2)
        ends = {change.key.pk: change for change in await world.tables.changes(TableName.CONTROL, 0) if is_end(change)}
        wanted = {pk: worker.router.wants(change) for pk, change in ends.items()}

        assert wanted == {"PIPELINE#a": True, "PIPELINE#b": False, "PIPELINE#c": True}
        await world.wait(minutes=1)
        # By now another pipeline may have been deployed that runs after it.
        assert worker.router.wants(ends["PIPELINE#b"])


def is_end(change: Change) -> bool:
    return change.key.sk.startswith("TRIGGER#") and (change.image or {}).get("status") == "COMPLETED"


@on_virtual_time
async def test_a_failed_upstream_starts_nothing_and_is_told_once_for_each_run_below() -> None:
    world = await a_chain(root("a"), after("b", ["a"]), after("c", ["b"]))
    world.runner.at_once = FAILED
    async with world.worker():
        await ready(world, "a", DAY)
        await world.wait(minutes=10)
        await rerun(world, f"a/{DAY}")
        await world.wait(minutes=10)

        assert await state_of(world, f"a/{DAY}") is State.FAILED_FINAL
        assert await state_of(world, f"b/{DAY}") is None
        for below in ("b", "c"):
            [event] = await told(world, below)
            assert event.event.type == "UPSTREAM_FAILED"
            cause = event.event.detail["rootCause"]
            assert isinstance(cause, dict)
            assert (cause["pipeline"], cause["status"]) == ("a", "failed")
            assert "exit code 3" in str(cause["reason"])

        world.runner.at_once = Succeeded()
        await rerun(world, f"a/{DAY}")
        await world.wait(minutes=2)
        assert await state_of(world, f"c/{DAY}") is State.COMPLETED


@on_virtual_time
async def test_every_run_two_levels_below_a_failed_one_is_told_however_many_there_are() -> None:
    names = [f"x{number:03d}" for number in range(BLOCKED_MAX + 20)]
    world = await a_chain(root("a"), after("b", ["a"]), *[after(name, ["b"]) for name in names])
    world.runner.at_once = FAILED
    async with world.worker():
        await ready(world, "a", DAY)
        await world.wait(minutes=5)

        assert [name for name in names if len(await told(world, name, "UPSTREAM_FAILED")) != 1] == []


@on_virtual_time
async def test_a_diamond_starts_its_end_once_both_sides_are_complete_and_reruns_it_once() -> None:
    world = await a_chain(root("a"), after("b", ["a"]), after("c", ["a"]), after("d", ["b", "c"]))
    async with world.worker("w1"), world.worker("w2", reads_feed=False):
        await ready(world, "a", DAY)
        await world.wait(minutes=2)
        first = await attempt_of(world, f"d/{DAY}")
        await rerun(world, f"a/{DAY}")
        await world.wait(minutes=10)

        assert first == 1
        assert [await attempt_of(world, f"{name}/{DAY}") for name in "abcd"] == [2, 2, 2, 2]
        assert [each.event.detail["reason"] for each in await told(world, "d", "RERUN_ACCEPTED")] == ["upstream"]


@on_virtual_time
async def test_a_day_waits_for_its_24_hours_and_runs_again_once_after_a_replay_of_all() -> None:
    world = await a_chain(root("hourly", "grain: hour"), after("daily", ["hourly"], "grain: day"))
    async with world.worker():
        for hour in HOURS[:-1]:
            await ready(world, "hourly", hour)
        await world.wait(minutes=2)
        early = await run_of(world, f"daily/{DAY}")
        await ready(world, "hourly", HOURS[-1])
        await world.wait(minutes=2)
        first = await run_of(world, f"daily/{DAY}")
        for hour in HOURS:
            await rerun(world, f"hourly/{hour}")
        await world.wait(minutes=10)
        again = await run_of(world, f"daily/{DAY}")

    assert early is None
    assert first is not None
    assert first.state is State.COMPLETED
    assert len(first.started_after) == 24
    assert again is not None
    assert (again.state, again.attempt, again.spent.drift) == (State.COMPLETED, 2, 1)


@on_virtual_time
async def test_an_upstream_that_completes_again_while_the_job_runs_causes_one_rerun_at_its_end() -> None:
    world = await a_chain(root("a"), after("b", ["a"]))
    async with world.worker():
        await ready(world, "a", DAY)
        await world.settle()
        world.runner.at_once = Running()
        await world.wait(seconds=2)
        await rerun(world, f"a/{DAY}")
        await world.wait(minutes=1)
        world.runner.at_once = Succeeded()
        for token in world.runner.running:
            world.runner.jobs[token] = Succeeded()
        await world.wait(minutes=30)

        assert [await attempt_of(world, f"{name}/{DAY}") for name in "ab"] == [2, 2]
        assert await state_of(world, f"b/{DAY}") is State.COMPLETED


@on_virtual_time
async def test_a_rerun_waits_at_the_gate_while_its_upstream_runs_again() -> None:
    world = await a_chain(root("a"), after("b", ["a"]))
    async with world.worker():
        await ready(world, "a", DAY)
        await world.wait(minutes=1)
        world.runner.at_once = Running()
        await rerun(world, f"a/{DAY}")
        await world.settle()
        await rerun(world, f"b/{DAY}")
        await world.wait(hours=6)
        waiting = await run_of(world, f"b/{DAY}")
        running = await state_of(world, f"a/{DAY}")

        assert running in {State.POLLING, State.STOPPING, State.FAILED_FINAL}
        assert waiting is not None
        assert waiting.state is State.EVALUATING
        assert waiting.is_at_gate


@on_virtual_time
async def test_on_rerun_decides_what_an_upstream_rerun_does() -> None:
    world = await a_chain(
        root("a"),
        after("alerted", ["{pipeline: a, onRerun: alert}"]),
        after("untouched", ["{pipeline: a, onRerun: ignore}"]),
    )
    async with world.worker():
        await ready(world, "a", DAY)
        await world.wait(minutes=1)
        await rerun(world, f"a/{DAY}")
        await world.wait(minutes=5)

        assert [await attempt_of(world, f"{name}/{DAY}") for name in ("alerted", "untouched")] == [1, 1]
        [event] = await told(world, "alerted", "LATE_DATA_ARRIVAL")
        assert event.event.detail["upstreams"] == [f"a/stream/{DAY}"]
        assert await told(world, "untouched", "LATE_DATA_ARRIVAL") == []


@on_virtual_time
async def test_reruns_stay_within_the_budget_unless_the_replay_is_followed() -> None:
    world = await a_chain(root("a"), after("b", ["a"]), after("c", ["b"], drift=0))
    async with world.worker():
        await ready(world, "a", DAY)
        await world.wait(minutes=1)
        await rerun(world, f"a/{DAY}")
        await world.wait(minutes=5)
        within = [await attempt_of(world, f"{name}/{DAY}") for name in "abc"]
        for _ in range(2):
            await rerun(world, f"a/{DAY}", is_followed=True)
            await world.wait(minutes=5)

        assert within == [2, 2, 1]
        assert [await attempt_of(world, f"{name}/{DAY}") for name in "abc"] == [4, 4, 3]
        [rejected] = await told(world, "c", "RERUN_REJECTED")
        assert "drift rerun limit reached (0 of 0)" in rejected.event.message
        spent = await run_of(world, f"c/{DAY}")
        assert spent is not None
        assert spent.spent.drift == 0


@on_virtual_time
async def test_a_trigger_and_after_are_both_required_in_either_order() -> None:
    both = """
pipeline: {id: b}
schedule:
  trigger: {key: ready, check: equals, field: status, value: done}
  after: [{pipeline: a}]
job: {type: command, config: {command: "true"}}
"""
    world = await a_chain(root("a"), both)
    other = "2026-03-02"
    async with world.worker():
        await ready(world, "a", DAY)
        await ready(world, "b", other)
        await world.wait(minutes=1)
        before = [await state_of(world, f"b/{day}") for day in (DAY, other)]
        await ready(world, "b", DAY)
        await ready(world, "a", other)
        await world.wait(minutes=1)

        assert before == [None, State.EVALUATING]
        assert [await state_of(world, f"b/{day}") for day in (DAY, other)] == [State.COMPLETED, State.COMPLETED]


@on_virtual_time
async def test_a_run_whose_pipeline_is_paused_begins_after_the_pause() -> None:
    world = await a_chain(root("a"), after("b", ["a"]))
    async with world.worker():
        await Pauses(world.tables).put(PipelineId("b"), Pause("migration"))
        await ready(world, "a", DAY)
        await world.wait(minutes=1)
        during = await state_of(world, f"b/{DAY}")
        await Pauses(world.tables).remove(PipelineId("b"))
        await world.wait(minutes=1)

        assert during is None
        assert await state_of(world, f"b/{DAY}") is State.COMPLETED


@on_virtual_time
async def test_a_pipeline_deployed_after_its_upstream_completed_runs_for_it() -> None:
    world = await a_chain(root("a"))
    async with world.worker():
        await ready(world, "a", DAY)
        await world.wait(minutes=1)
        await push(world.tables, world, after("b", ["a"]))
        await world.wait(minutes=1)

        assert await state_of(world, f"b/{DAY}") is State.COMPLETED


@on_virtual_time
async def test_latest_takes_the_newest_completed_period_within_its_reach() -> None:
    world = await a_chain(root("a"), root("rates"), after("b", ["a", "{pipeline: rates, periods: latest, within: 3d}"]))
    async with world.worker():
        await ready(world, "rates", "2026-02-27")
        await ready(world, "a", DAY)
        await world.wait(minutes=1)
        out_of_reach = await state_of(world, f"b/{DAY}")
        await ready(world, "rates", "2026-03-01")
        await world.wait(minutes=1)
        run = await run_of(world, f"b/{DAY}")

    assert out_of_reach is None
    assert run is not None
    assert run.state is State.COMPLETED
    assert "rates/stream/2026-03-01" in run.started_after


@on_virtual_time
async def test_explain_and_status_say_which_upstream_runs_a_run_waits_for() -> None:
    world = await a_chain(root("hourly", "grain: hour"), after("daily", ["hourly"], "grain: day"))
    async with world.worker():
        for hour in HOURS[:5]:
            await ready(world, "hourly", hour)
        await world.wait(minutes=5)
        world.runner.at_once = FAILED
        await ready(world, "hourly", HOURS[8])
        await world.wait(minutes=10)
        world.runner.at_once = Running()
        await ready(world, "hourly", HOURS[7])
        await world.settle()
        finding = await after_finding(world, f"daily/{DAY}")

    assert finding.passage is GateStatus.CLOSED
    assert finding.sentence == (
        f"waits for hourly {DAY}: 5 of 24 hours completed; T07 running (usually 0s), T08 failed, "
        "T05 not started, T06 not started, T09 not started, and 14 more"
    )
    assert finding.changes == (f"fix hourly and run `interlock rerun hourly {DAY}T08`",)


async def after_finding(world: World, name: str) -> GateFinding:
    loader, key = SnapshotLoader(world.tables), key_of(name)
    version = await loader.version(key.pipeline)
    assert isinstance(version, Version)
    explanation = explain(await loader.at(key, version, world.clock.now()))
    return next(each for each in explanation.findings if each.gate is Gate.AFTER)


@on_virtual_time
async def test_a_breach_three_levels_down_names_the_root_cause_and_goes_to_its_thread() -> None:
    deadline = "sla: {deadline: '13:00', dayOffset: 0}\n"
    world = await a_chain(
        root("a"),
        after("b", ["a"]),
        after("c", ["b"]),
        after("d", ["c"], "start: cron\n  cron: '0 12 * * *'") + deadline,
    )
    world.runner.at_once = FAILED
    async with world.worker() as worker:
        await ready(world, "a", DAY)
        await world.wait(minutes=5)
        key = key_of(f"d/cron/{DAY}")
        version = await worker.parts.configs.current(key.pipeline)
        assert version is not None
        wanted = RunTriggered(key=key, birth=worker.engine.new_run(version), origin=Origin.CRON)
        await worker.engine.handle(key, wanted)
        await world.wait(hours=2)
        waiting = await run_of(world, f"d/cron/{DAY}")

    assert waiting is not None
    assert waiting.is_at_gate
    [breach] = await told(world, "d", "SLA_BREACH")
    assert "root cause: a/stream/2026-03-03 failed: exit code 3" in breach.event.message
    assert text.thread_of(breach.event) == ThreadKey("a", "stream", DAY)


@on_virtual_time
async def test_the_alert_of_a_failed_run_names_the_runs_that_wait_for_it_the_nearest_deadline_first() -> None:
    due = "sla: {deadline: '13:00', dayOffset: 0}\n"
    others = [after(f"x{number}", ["a"]) for number in range(4)]
    texts = [after("b", ["a"]), after("c", ["b"]) + due, after("fine", ["{pipeline: a, require: ended}"]), *others]
    world = await a_chain(root("a"), *texts)
    world.runner.at_once = FAILED
    async with world.worker():
        await ready(world, "a", DAY)
        await world.wait(minutes=5)

    [alert] = await told(world, "a", "RETRY_EXHAUSTED")
    assert alert.event.message.endswith(
        f"; 6 runs wait for it: c/stream/{DAY} (due 2026-03-03T13:00:00Z), b/stream/{DAY}, x0/stream/{DAY}, "
        f"x1/stream/{DAY}, x2/stream/{DAY}, and 1 more"
    )
    waiting = alert.event.detail["waiting"]
    assert isinstance(waiting, dict)
    assert (waiting["total"], waiting["isCut"]) == (6, False)
    first = {"pipeline": "c", "schedule": "stream", "period": DAY, "deadline": "2026-03-03T13:00:00Z"}
    assert isinstance(waiting["runs"], list)
    assert (len(waiting["runs"]), waiting["runs"][0]) == (6, first)


@on_virtual_time
async def test_the_breach_of_a_root_names_the_runs_that_wait_for_it() -> None:
    due = "sla: {deadline: '13:00', dayOffset: 0}\n"
    world = await a_chain(root("a") + due, after("b", ["a"]), after("c", ["b"]))
    world.runner.at_once = Running()
    async with world.worker():
        await ready(world, "a", DAY)
        await world.wait(hours=2)

    [breach] = await told(world, "a", "SLA_BREACH")
    assert breach.event.message.endswith(f"; 2 runs wait for it: b/stream/{DAY}, c/stream/{DAY}")
    assert text.thread_of(breach.event) == ThreadKey("a", "stream", DAY)


@on_virtual_time
async def test_a_failed_rerun_names_no_run_that_has_begun_and_a_list_of_many_is_cut() -> None:
    world = await a_chain(root("a"), after("b", ["a"]))
    async with world.worker():
        await ready(world, "a", DAY)
        await world.wait(minutes=2)
        world.runner.at_once = FAILED
        await rerun(world, f"a/{DAY}")
        await world.wait(minutes=5)
        [begun] = await told(world, "a", "RETRY_EXHAUSTED")
        await push(world.tables, world, *[after(f"x{number:03d}", ["a"]) for number in range(BLOCKED_MAX + 5)])
        await world.settle()
        await rerun(world, f"a/{DAY}")
        await world.wait(minutes=5)
        [_, many] = await told(world, "a", "RETRY_EXHAUSTED")

    assert "waiting" not in begun.event.detail
    assert f"; at least {BLOCKED_MAX} runs wait for it: x000/stream/{DAY}, " in many.event.message
    assert many.event.message.endswith(f", and at least {BLOCKED_MAX - NAMED_MAX} more")


@on_virtual_time
async def test_a_cycle_that_arrives_as_a_row_is_rejected_with_its_path_and_the_last_version_stays() -> None:
    world = await a_chain(root("a"), after("b", ["a"]), after("c", ["b"]))
    async with world.worker() as worker:
        await world.settle()
        await push(world.tables, world, after("a", ["c"]))
        await world.settle()
        version = await worker.parts.configs.current(PipelineId("a"))
        await ready(world, "a", DAY)
        await world.wait(minutes=2)

        [rejected] = await told(world, "a", "CONFIG_REJECTED")
        assert rejected.event.detail["problems"] == ["a cycle: a after c after b after a"]
        assert rejected.event.message.startswith(
            "the configuration of a has a cycle: a after c after b after a; version "
        )
        judged = await worker.parts.configs.judged(PipelineId("a"))
        assert isinstance(judged, Unusable)
        assert judged.problems == ("a cycle: a after c after b after a",)
        assert version is not None
        assert version.pipeline.schedules[0].after == ()
        assert await state_of(world, f"c/{DAY}") is State.COMPLETED


@on_virtual_time
async def test_explain_shows_the_cycle_of_a_pipeline_that_never_had_a_version_without_one() -> None:
    world = await a_chain(after("b", ["a"]), after("c", ["b"]), after("a", ["c"]))
    async with world.worker():
        await world.settle()
        versions = [await SnapshotLoader(world.tables).version(PipelineId(name)) for name in "abc"]

    problems = [version.problems[0] for version in versions if isinstance(version, Unusable)]
    assert problems
    assert all(problem.startswith("a cycle: ") for problem in problems)


@on_virtual_time
async def test_a_version_rejected_for_a_cycle_is_in_force_once_another_pipeline_ends_the_cycle() -> None:
    world = await a_chain(root("a"), after("b", ["a"]), after("c", ["b"]))
    async with world.worker() as worker:
        await world.settle()
        await push(world.tables, world, after("a", ["c"]))
        await world.settle()
        await push(world.tables, world, root("b"))
        await world.settle()
        version = await worker.parts.configs.current(PipelineId("a"))
        left = await Marks(world.tables).get(PipelineId("b"), cycle_mark_sk(PipelineId("a")))
        await ready(world, "b", DAY)
        await world.wait(minutes=2)

        assert version is not None
        assert [each.pipeline for each in version.pipeline.schedules[0].after] == ["c"]
        assert [each.event.type for each in await told(world, "a")][:2] == ["CONFIG_REJECTED", "CONFIG_ACCEPTED"]
        assert await state_of(world, f"a/{DAY}") is State.COMPLETED
        assert left is None


@on_virtual_time
async def test_a_version_rejected_for_a_cycle_is_in_force_once_a_pipeline_of_the_cycle_is_removed() -> None:
    world = await a_chain(root("a"), after("b", ["a"]))
    async with world.worker() as worker:
        await world.settle()
        await push(world.tables, world, after("a", ["b"]))
        await world.settle()
        await withdraw(world.tables, PipelineId("b"), world.clock)
        await world.settle()
        version = await worker.parts.configs.current(PipelineId("a"))

    assert version is not None
    assert [each.pipeline for each in version.pipeline.schedules[0].after] == ["b"]


@on_virtual_time
async def test_a_replay_of_a_day_that_is_written_slowly_causes_one_rerun_below() -> None:
    world = await a_chain(root("hourly", "grain: hour"), after("daily", ["hourly"], "grain: day", drift=5))
    async with world.worker() as worker:
        for hour in HOURS:
            await ready(world, "hourly", hour)
        await world.wait(minutes=5)
        version = await worker.parts.configs.current(PipelineId("hourly"))
        assert version is not None
        # Each commit takes a minute, in which the worker does all that it can.
        slow = FaultyTables(world.tables, on_commit(Fault(reply_delay_s=60.0)), patience_s=600.0)
        asking = RunRequests(slow, world.clock, by=Requester(name="anna", via="cli"))
        keys = [key_of(f"hourly/{hour}") for hour in HOURS]
        asked = await asking.replay(keys, version, RerunSpec(reason="replay"))
        await world.wait(minutes=10)

        assert all(each.is_written for each in asked)
        assert {await attempt_of(world, f"hourly/{hour}") for hour in HOURS} == {2}
        assert await attempt_of(world, f"daily/{DAY}") == 2


@on_virtual_time
async def test_a_rerun_below_waits_for_a_request_that_a_pause_holds_for_hours() -> None:
    world = await a_chain(root("a"), root("b"), after("d", ["a", "b"], drift=5))
    async with world.worker():
        for name in ("a", "b"):
            await ready(world, name, DAY)
        await world.wait(minutes=2)
        await Pauses(world.tables).put(PipelineId("b"), Pause("migration"))
        await rerun(world, f"b/{DAY}")
        await world.wait(hours=3)
        await rerun(world, f"a/{DAY}")
        await world.wait(minutes=10)
        held = await attempt_of(world, f"d/{DAY}")
        await Pauses(world.tables).remove(PipelineId("b"))
        await world.wait(minutes=10)

        assert held == 1
        assert [await attempt_of(world, f"{name}/{DAY}") for name in "abd"] == [2, 2, 2]
