"""The log lines of two workers tell the whole story of a failed run, without the store, across a takeover."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import pytest

from tests.support.worlds.live_worker import LiveWorker, live_worker
from tests.support.worlds.observer import Onlooker, last_days, session_of, wait_until
from worker.core.model.keys import RunKey
from worker.core.run.state import Outcome, State
from worker.runtime.clock import SystemClock
from worker.store.sqlite.tables import SqliteTables

ENDED_WITHIN_S: Final = 100.0

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(300)]

# The first attempt waits until the test lets it end; both end with 3.
CONFIG: Final = """
pipeline: {id: orders}
schedule:
  trigger: {key: ready, check: equals, field: status, value: done}
  evaluation: {window: 1h, interval: 5m}
validation:
  rules:
    - {key: ready, check: exists}
job:
  type: command
  maxRetries: 1
  config: {command: [sh, -c, "while [ ! -e go ]; do sleep 0.05; done; echo no rates >&2; exit 3"]}
  pollIntervalSeconds: 1
"""


@dataclass(slots=True)
class Story:
    """What the lines of a run say."""

    facts: list[str] = field(default_factory=list[str])
    attempts: dict[int, str] = field(default_factory=dict[int, str])  # -> its job
    reasons: list[str] = field(default_factory=list[str])
    sessions: list[str] = field(default_factory=list[str])  # that decided, in order
    adopted_from: list[str] = field(default_factory=list[str])
    run_ids: set[str] = field(default_factory=set[str])
    state: str = ""


def read(logs: Sequence[Path]) -> list[dict[str, object]]:
    """Return all lines in order of time. Every line is JSON, also the first of a worker."""
    lines = [cast("dict[str, object]", json.loads(line)) for log in logs for line in log.read_text().splitlines()]
    return sorted(lines, key=lambda line: str(line["at"]))


def told(lines: Sequence[dict[str, object]], run: str) -> Story:
    """Tell the story of a run from log lines alone."""
    story = Story()
    for line in lines:
        if line.get("run") != run or line["event"] not in {"fact.handled", "run.adopted"}:
            continue
        session = str(line["session"])
        if not story.sessions or story.sessions[-1] != session:
            story.sessions.append(session)
        if line["event"] == "run.adopted":
            story.adopted_from.append(str(line["owner"]))
            continue
        story.facts.append(str(line["fact"]))
        story.run_ids.add(str(line["run_id"]))
        story.state = str(line["state"])
        if line["job"]:
            story.attempts[int(str(line["attempt"]))] = str(line["job"])
        if line["fact"] == "JobFailed":
            story.reasons.append(str(line["reason"]))
    return story


async def owner_of(outside: Onlooker, key: RunKey, workers: Sequence[LiveWorker]) -> LiveWorker:
    by_session = {session_of(worker): worker for worker in workers}

    async def runs() -> bool:
        return any(run.state is State.POLLING and run.owner in by_session for run in await outside.active([key]))

    await wait_until(runs, within_s=ENDED_WITHIN_S, workers=workers)
    [run] = await outside.active([key])
    assert run.owner is not None
    return by_session[run.owner]


async def test_the_lines_of_two_workers_tell_a_failed_run_without_the_store(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(CONFIG)
    tables, [key] = SqliteTables(tmp_path / "interlock.db", SystemClock()), last_days(1)
    with (
        # At the pace of production: a worker that loses its session on a busy machine would tell another story.
        live_worker(tmp_path, "--pipelines", "pipelines", name="first", timing="default") as first,
        live_worker(tmp_path, name="second", timing="default") as second,
    ):
        await tables.start()
        try:
            outside = Onlooker(tables=tables)
            await outside.say_ready([key])
            owner = await owner_of(outside, key, [first, second])

            async def is_logged() -> bool:
                return owner.has_logged('"JobStarted"')

            # A worker that is killed between its commit and its line takes the line with it.
            await wait_until(is_logged, within_s=ENDED_WITHIN_S, workers=[owner])
            other = second if owner is first else first
            sessions = [session_of(owner), session_of(other)]
            owner.kill()

            async def is_taken_over() -> bool:
                return other.has_logged("run.adopted")

            await wait_until(is_taken_over, within_s=ENDED_WITHIN_S, workers=[other])
            (tmp_path / "go").touch()

            async def has_failed() -> bool:
                return other.has_logged(f'"{State.FAILED_FINAL.value}"')  # the line follows its commit

            await wait_until(has_failed, within_s=ENDED_WITHIN_S, workers=[other])
            [run] = await outside.runs([key])
            assert run.outcome is Outcome.FAILED
        finally:
            await tables.stop()

    story = told(read([first.log, second.log]), str(key))

    assert story.facts[0] == "RunTriggered"
    assert [each for each in story.facts if each in {"RulesHeld", "JobStarted", "JobFailed"}] == [
        "RulesHeld",
        "JobStarted",
        "JobFailed",
        *(["RulesHeld"] if story.facts.count("RulesHeld") > 1 else []),
        "JobStarted",
        "JobFailed",
    ]
    assert story.sessions == sessions
    assert story.adopted_from == sessions[:1]
    assert story.run_ids == {run.run_id}
    assert sorted(story.attempts) == [1, 2]
    assert story.attempts[1] != story.attempts[2]
    assert [("exit code 3" in reason, "no rates" in reason) for reason in story.reasons] == [(True, True)] * 2
    assert story.state == State.FAILED_FINAL.value
