"""`interlock sensor remove`: what goes, what stays, and what is said about it."""

import asyncio
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.builders.cli_runs import a_store
from tests.support.builders.command_line import TODAY, interlock, records
from tests.support.clock.manual import ManualClock
from worker.cli.commands.sensor_removal import run_remove
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_session import StoreAccess
from worker.core.errors import RetryLater
from worker.operations.sensors.names import sensor_name

URL = "sqlite:///interlock.db"
OUTLOOK = "A removal starts nothing; waiting runs notice it at their next evaluation."


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    a_store(here)


def keys_left() -> list[str]:
    return [record["key"] for record in records(interlock("sensor", "list", "orders").stdout)]


def put(*keys: str) -> None:
    for key in keys:
        assert interlock("sensor", "put", "orders", key, "rows=1").exit_code == 0


def on_terminal(key: str, consent: Consent) -> tuple[int, list[str], list[str]]:
    """The exit code, and what a person sees of results and remarks."""
    out, err = io.StringIO(), io.StringIO()
    shown, said = (Console(file=file, force_terminal=True, width=120, color_system=None) for file in (out, err))
    access = StoreAccess(url=URL, clock=ManualClock(TODAY))
    work = run_remove(
        Screen(out=shown, err=said), access, sensor_name("orders", key, None), consent=consent, as_json=False
    )
    code = asyncio.run(work)
    return code, out.getvalue().splitlines(), err.getvalue().splitlines()


def test_a_pipe_gets_what_was_removed_as_json() -> None:
    put("export", "exprot")

    result = interlock("sensor", "remove", "orders", "exprot", "--yes")

    assert (result.exit_code, result.stderr) == (0, "")
    assert records(result.stdout) == [{"type": "removed", "pipeline": "orders", "key": "exprot", "data": {"rows": 1}}]
    assert keys_left() == ["export"]


def test_a_person_sees_the_sensor_is_asked_and_is_told_what_the_pipeline_makes_of_it() -> None:
    put("export")

    code, shown, said = on_terminal("export", Consent(False, lambda _: "y"))

    assert (code, shown) == (0, ["removed sensor export of orders"])
    assert said == [
        "orders export",
        "  rows  1",
        f"Remove sensor export of orders? {OUTLOOK} [y/N]",
        f"    {OUTLOOK}",
    ]
    assert keys_left() == []


def test_of_a_sensor_that_nothing_looks_at_that_is_said() -> None:
    put("weather")

    _, _, said = on_terminal("weather", Consent(True, None))

    assert said == ["    Nothing in the pipeline uses it."]


def test_a_removal_can_be_declined() -> None:
    put("export")

    code, shown, said = on_terminal("export", Consent(False, lambda _: "n"))

    assert (code, shown, said[-1]) == (0, [], "nothing was removed")
    assert keys_left() == ["export"]


def test_without_a_terminal_a_removal_needs_yes() -> None:
    put("export")

    result = interlock("sensor", "remove", "orders", "export")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "add --yes" in result.stderr
    assert keys_left() == ["export"]


def test_a_sensor_written_while_a_person_thinks_stays() -> None:
    put("export")

    def think(_: str) -> str:
        with ThreadPoolExecutor(1) as elsewhere:  # another process, with a loop of its own
            written = elsewhere.submit(interlock, "sensor", "put", "orders", "export", "rows=2").result()
        assert written.exit_code == 0
        return "y"

    with pytest.raises(RetryLater, match="was written again meanwhile"):
        on_terminal("export", Consent(False, think))

    assert records(interlock("sensor", "get", "orders", "export").stdout)[0]["data"] == {"rows": 2}


def test_a_mistyped_key_exits_with_2_and_a_suggestion() -> None:
    put("export")

    result = interlock("sensor", "remove", "orders", "exprot", "--yes")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == ["error: there is no sensor exprot of orders", "    did you mean `export`?"]


@pytest.mark.parametrize("spelling", ["2026-03-03", "20260303"])
def test_with_a_period_only_the_sensor_of_the_period_goes(spelling: str) -> None:
    put("export", f"export#{spelling}", "export#2026-03-04")

    removed, again = (
        interlock("sensor", "remove", "orders", "export", "--period", "2026-03-03", "--yes") for _ in range(2)
    )

    assert (removed.exit_code, again.exit_code) == (0, 2)
    assert keys_left() == ["export", "export#2026-03-04"]
