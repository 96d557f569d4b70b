"""`interlock doctor` on a file, and what it makes of what it finds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.cli_runs import in_store
from tests.support.builders.command_line import interlock, records
from tests.support.clock.manual import ManualClock
from worker.config.settings import SHADOW
from worker.config.store_setting import GROUP
from worker.core.membership.liveness import DEFAULT_TIMING, FAST_TIMING
from worker.core.model.keys import SessionId
from worker.operations.doctor.group import WorkerGroup, look_at_workers, watch_workers
from worker.operations.doctor.machine import FREE_LOW, FREE_MIN, look_at_disk
from worker.operations.doctor.report import Health
from worker.store.repos.sessions import Session, Sessions, SessionState

NOBODY: dict[str, int] = {}


def diagnoses(*options: str) -> dict[str, dict[str, Any]]:
    return {
        f"{found.get('area')} {found.get('subject')}": found
        for found in records(interlock("doctor", "--json", *options).stdout)
    }


def a_session(program: str, state: SessionState = SessionState.LIVE, *, name: str = "s", beat: int = 1) -> Session:
    return Session(id=SessionId(name), beat=beat, state=state, program=program)


def test_a_sound_store_with_no_worker_is_only_worth_a_look(here: Path) -> None:
    interlock("store", "init")

    result = interlock("doctor")

    assert result.exit_code == 0, result.output
    assert "durability: write-ahead log, and every commit waits for the disk" in result.stdout
    assert "warn  workers" in result.stdout
    assert result.stdout.endswith("1 warning, 0 failed\n")


def test_a_quiet_doctor_keeps_to_what_is_not_as_it_should_be(here: Path) -> None:
    interlock("store", "init")

    lines = interlock("doctor", "--quiet").stdout.splitlines()

    assert [line.split()[0] for line in lines[:-1]] == ["warn"]


def test_a_store_that_is_not_there_fails_with_what_to_do(here: Path) -> None:
    result = interlock("doctor", "--json", "--store", "sqlite:///nowhere/interlock.db")

    assert result.exit_code == 1
    found = [record for record in records(result.stdout) if record.get("health") == "fail"]
    assert found
    assert all(record["remedy"] for record in found)


def test_a_file_that_is_no_store_fails_and_nothing_unexpected_is_said(here: Path) -> None:
    (here / "interlock.db").write_bytes(b"not a database, but long enough to be taken for one" * 100)

    result = interlock("doctor")

    assert result.exit_code == 1
    assert "unexpected" not in result.output


def test_workers_and_their_versions_are_seen(here: Path) -> None:
    interlock("store", "init")
    in_store(lambda tables: Sessions(tables, GROUP).register(SessionId("one"), "0.0.1"))

    found = diagnoses()

    assert found["workers sessions"]["finding"] == "1 worker is registered, without a heartbeat"
    assert found["workers versions"]["health"] == "warn"
    assert "they run 0.0.1" in found["workers versions"]["finding"]


@pytest.mark.parametrize(
    ("looks", "finding"),
    [
        ([NOBODY], "no worker is registered"),
        ([{"one": 1}, {"one": 2}], "1 worker is registered and alive"),
        ([{"one": 1}, {"one": 1}, {"one": 2}], "1 worker is registered and alive"),
        ([{"one": 1}], "1 worker is registered, without a heartbeat"),
        ([{"one": 1, "two": 1}, {"one": 1, "two": 2}], "2 workers are registered, and 1 of them without a heartbeat"),
        ([{"one": 1, "two": 1}], "2 workers are registered, none with a heartbeat"),
        ([{"one": 1, "two": 1}, {"two": 2}], "1 worker is registered and alive"),
        ([{"one": 1}, NOBODY], "no worker is registered"),
    ],
)
async def test_a_worker_counts_as_alive_once_it_has_beaten(looks: list[dict[str, int]], finding: str) -> None:
    """`looks` are the beats as the rows have them, from one look to the next; the last one stays."""
    clock, shown = ManualClock(), iter(looks)
    seen: dict[str, int] = {}

    async def look() -> list[Session]:
        nonlocal seen
        seen = next(shown, seen)
        return [a_session("1.0", name=name, beat=beat) for name, beat in seen.items()]

    staff = await watch_workers(look, clock, patience_s=7)
    found = next(look_at_workers(staff, "1.0"))

    assert found.finding == finding
    assert (found.health is Health.OK) == finding.endswith("alive")
    assert clock.monotonic() <= 7


async def test_dead_workers_do_not_count() -> None:
    async def look() -> list[Session]:
        return [a_session("1.0", SessionState.DEAD)]

    [found] = look_at_workers(await watch_workers(look, ManualClock(), patience_s=7), "1.0")

    assert (found.health, found.finding) == (Health.WARN, "no worker is registered")


def test_workers_of_another_timing_would_keep_a_worker_with_these_settings_out() -> None:
    old, fast = a_session("1.0"), replace(a_session("1.0"), pace=FAST_TIMING.pace)

    assert [
        each for each in look_at_workers(WorkerGroup([old, fast]), "1.0", FAST_TIMING) if each.health is Health.FAIL
    ] == []
    [*_, found] = look_at_workers(WorkerGroup([old, fast]), "1.0", DEFAULT_TIMING)

    assert (found.subject, found.health) == ("INTERLOCK_TIMING", Health.FAIL)
    assert found.finding.startswith("they have fast, and a worker with these settings would have default")


def test_workers_of_one_version_are_fine() -> None:
    assert [found.health for found in look_at_workers(WorkerGroup([a_session("1.0")]), "1.0")] == [Health.OK, Health.OK]


@pytest.mark.parametrize(
    ("free", "health"), [(FREE_LOW, Health.OK), (FREE_LOW - 1, Health.WARN), (FREE_MIN - 1, Health.FAIL)]
)
def test_a_disk_that_fills_up_is_noticed_before_commits_fail(free: int, health: Health, tmp_path: Path) -> None:
    [found] = look_at_disk(tmp_path / "interlock.db", lambda _: free)

    assert found.health is health


def test_of_a_shadow_only_what_it_needs_is_looked_at(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interlock("store", "init", "--store", f"sqlite:///{here}/interlock.db")
    monkeypatch.setenv(SHADOW, "1")

    assert diagnoses()["settings roles"]["finding"] == "engine"


def test_a_setting_that_is_mistyped_is_worth_a_look(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("INTERLOCK_STROE", "INTERLOCK_HTTP_ALOW", "INTERLOCK_WAREHOUSE_PASSWORD", "INTERLOCK_JOBS_TOKEN"):
        monkeypatch.setenv(name, "x")
    interlock("store", "init")

    found = {name: each for name, each in diagnoses().items() if name.startswith("settings INTERLOCK_")}

    assert set(found) == {"settings INTERLOCK_STROE", "settings INTERLOCK_HTTP_ALOW"}
    assert found["settings INTERLOCK_STROE"]["health"] == "warn"
    assert found["settings INTERLOCK_STROE"]["remedy"] == "if INTERLOCK_STORE is meant, rename it"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"INTERLOCK_HTTP_ALLOW": "*"}, "INTERLOCK_HTTP_ALLOW"),
        ({"INTERLOCK_HEALTH": "8080"}, "INTERLOCK_HEALTH"),
        ({"INTERLOCK_WEB": "0.0.0.0:8040"}, "INTERLOCK_WEB"),
        ({"INTERLOCK_SLACK_TOKEN": "xoxb-1"}, "INTERLOCK_ALERTS"),
        ({"INTERLOCK_SLACK_TOKEN": "xoxb-1", "INTERLOCK_ALERTS": "chanel: x"}, "INTERLOCK_ALERTS"),
        ({"INTERLOCK_SENSORS_QUEUE": "https://sqs.example.com/1/q"}, "INTERLOCK_INBOX"),
    ],
)
def test_a_setting_that_a_worker_would_trip_over_fails(
    here: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], name: str
) -> None:
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    interlock("store", "init")

    found = diagnoses()[f"settings {name}"]

    assert found["health"] == "fail"
    assert found["remedy"]


def test_a_setting_that_is_understood_is_said_to_be(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_HTTP_ALLOW", "10.0.0.0/8")
    interlock("store", "init")

    assert diagnoses()["settings INTERLOCK_HTTP_ALLOW"]["finding"] == "is understood"


@pytest.mark.parametrize(
    ("environment", "idle"),
    [
        ({"INTERLOCK_BUS": "prod"}, {"INTERLOCK_BUS": "only a worker on AWS has a bus and queues"}),
        ({"INTERLOCK_POLLS": "eco"}, {"INTERLOCK_POLLS": "readers are woken"}),
        ({"INTERLOCK_ALERTS": "alerts.yaml"}, {"INTERLOCK_ALERTS": "there is no INTERLOCK_SLACK_TOKEN"}),
        ({"INTERLOCK_SLACK_TOKEN": "xoxb-1", "INTERLOCK_SLACK_CHANNEL": "#data"}, {}),
        ({"INTERLOCK_HEALTH": "127.0.0.1:8080"}, {}),
    ],
)
def test_a_setting_that_has_no_effect_on_one_file_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], idle: dict[str, str]
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    interlock("store", "init")

    found = {each["subject"]: each["finding"] for each in diagnoses().values() if each.get("health") == "warn"}

    del found["sessions"]
    assert found == {name: f"is set and has no effect: {why}" for name, why in idle.items()}
