"""The commands on a store on a Redis server: init, check, stats and doctor, and no password anywhere."""

import json
from pathlib import Path
from secrets import token_hex

import pytest

from tests.support.builders.command_line import interlock, records
from tests.support.redis_server import RedisServer, redis_server
from worker.config.settings import STORE

pytestmark = pytest.mark.xdist_group("redis")


def a_url(server: RedisServer | None = None) -> str:
    return f"{(server or redis_server()).url}?prefix=c{token_hex(6)}"


def test_init_makes_a_store_once_and_check_finds_nothing(here: Path) -> None:
    url = a_url()

    before = interlock("store", "check", "--store", url)
    made, again = interlock("store", "init", "--store", url), interlock("store", "init", "--store", url)
    after = interlock("store", "check", "--store", url, "--json")

    assert before.exit_code == 1
    assert "interlock store init" in before.output
    assert made.stdout.startswith("made redis://127.0.0.1:")
    assert again.stdout.startswith("nothing to do:")
    assert after.exit_code == 0, after.output
    subjects = [record["subject"] for record in records(after.stdout)]
    assert {"maxmemory-policy", "appendonly", "appendfsync", "replication", "rights"} <= set(subjects)


def test_a_command_refuses_a_store_that_was_never_made(here: Path) -> None:
    refused = interlock("status", "--store", a_url())

    assert refused.exit_code == 2
    assert "interlock store init" in refused.output


@pytest.mark.usefixtures("here")
def test_a_command_that_does_not_reach_the_server_says_what_to_check() -> None:
    result = interlock("status", "--store", "redis://127.0.0.1:1/0")

    assert result.exit_code == 3
    assert "check that it runs, and its address" in result.stderr


def test_stats_count_without_a_scan(here: Path) -> None:
    url = a_url()
    interlock("store", "init", "--store", url)
    interlock("sensor", "put", "orders", "landed", "rows=5", "--store", url)

    figures = {
        each["name"]: each["value"] for each in records(interlock("store", "stats", "--store", url, "--json").stdout)
    }

    assert figures["control changes kept"] == 1
    assert figures["schema version"] == 1


def test_doctor_rejects_a_server_that_evicts_and_says_which_promise_holds(here: Path) -> None:
    server = RedisServer(options=("--appendonly", "yes", "--save", "")).start()
    try:
        url = a_url(server)
        interlock("store", "init", "--store", url)
        server.say("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")

        refused = interlock("store", "init", "--store", url)
        found = interlock("doctor", "--store", url, "--json")
    finally:
        server.stop()

    failed = {each["subject"]: each for each in records(found.stdout) if each.get("health") == "fail"}
    assert refused.exit_code == 2
    assert "set it to noeviction" in refused.stderr
    assert found.exit_code == 1
    assert set(failed) == {"maxmemory-policy", "appendfsync", "promise 2: no decision is lost"}
    assert "noeviction" in failed["maxmemory-policy"]["remedy"]


def test_no_command_shows_the_password(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = RedisServer().start()
    try:
        server.say("ACL", "SETUSER", "worker", "on", ">hunter2", "~*", "&*", "+@all")
        url = f"redis://worker:hunter2@127.0.0.1:{server.port}/0"
        monkeypatch.setenv(STORE, url)

        said = [interlock(*command) for command in (
            ["store", "init"], ["store", "check"], ["settings"], ["settings", "--json"], ["doctor"],
            ["status", "--store", url.replace("hunter2", "hunter22")], ["status", "--store", url + "?perfix=1"],
        )]  # fmt: skip
    finally:
        server.stop()

    assert said[0].exit_code == 0, said[0].output
    assert [json.dumps(each.output) for each in said if "hunter2" in each.output] == []
