"""The runbook has an entry for all that asks for a person, and for nothing else; the log's page is up to date."""

import ast
import re
from pathlib import Path

import pytest

from consumers.outbox.severities import told_pattern
from tests.support.builders.command_line import interlock
from tests.support.pages.log_catalogue import (
    PACKAGES,
    PAGE,
    catalogue,
    logged_in,
    loud,
    meanings,
    with_fresh_table,
)
from worker.core.model.events import EventType

ROOT = Path(__file__).parents[3]
RUNBOOK = (ROOT / "deploy" / "runbook.md").read_text(encoding="utf-8")
ALARMS = (ROOT / "deploy" / "terraform" / "alarms.tf").read_text(encoding="utf-8")
LOGS = PAGE.read_text(encoding="utf-8")
ENTRY = re.compile(r"^### `([\w.-]+)`\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
GROUPED = {"store", "pipelines", "sensor", "dlq", "schedule", "watchdog", "migrate"}


def part(name: str) -> str:
    [text] = re.findall(rf"^# {name}\n(.*?)(?=^# |\Z)", RUNBOOK, re.MULTILINE | re.DOTALL)
    return text


def entries(name: str) -> dict[str, str]:
    return dict(ENTRY.findall(part(name)))


def untold() -> set[str]:
    match told_pattern():
        case {"detail-type": [{"anything-but": list(names)}]}:
            return {str(name) for name in names}
        case pattern:
            raise AssertionError(f"the pattern has another form now: {pattern}")


def test_every_event_that_reaches_people_has_an_entry() -> None:
    assert set(entries("Alerts")) == {event.value for event in EventType} - untold()


def test_every_error_of_the_log_has_an_entry() -> None:
    assert set(entries("Log events")) == loud()


def test_every_alarm_has_an_entry() -> None:
    of_services = re.findall(r"^ {4}([a-z-]+) *= \{ metric", ALARMS, re.MULTILINE)
    others = re.findall(r'alarm_name += "\$\{var\.name\}-(?:\$\{each\.key\}-)?([a-z-]+)"', ALARMS)

    assert set(entries("Alarms")) == {*of_services, *others}
    assert len(of_services) > 5


@pytest.mark.parametrize("name", ["Alerts", "Alarms", "Log events"])
def test_an_entry_says_what_it_means_how_to_see_it_and_what_to_do(name: str) -> None:
    for title, text in entries(name).items():
        assert re.findall(r"^\* \*\*(\w+):\*\* \S", text, re.MULTILINE) == ["Means", "See", "Do"], title


def test_the_commands_of_the_runbook_exist() -> None:
    commands = set(re.findall(r"`(interlock [a-z]+[^`]*)`", RUNBOOK))
    pages = {name: interlock(*name, "--help") for name in {_name(command) for command in commands}}

    assert {" ".join(name) for name, page in pages.items() if page.exit_code} == set()
    for command in commands:
        options = re.findall(r" (--[a-z-]+)", command)
        assert [option for option in options if option not in pages[_name(command)].stdout] == [], command


def _name(command: str) -> tuple[str, ...]:
    words = command.split()[1:]
    return tuple(words[: 2 if words[0] in GROUPED else 1])


# --- docs/logs.md -----------------------------------------------------------------------------------------------------


def test_the_page_of_the_log_is_up_to_date() -> None:
    assert with_fresh_table(LOGS) == LOGS, "run `python -m tests.support.pages.log_catalogue`"


def test_every_event_of_the_log_has_a_meaning() -> None:
    written = meanings(LOGS)

    assert [name for name in catalogue() if not written.get(name)] == []


def test_no_call_of_a_logger_is_overlooked() -> None:
    """But one: the engine's log, which hands on what it is given."""
    overlooked: list[str] = []
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "_log." not in source:
            continue
        names = {name for name, _, _ in logged_in(source)}
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
        logs = [call for call in calls if re.match(r"_log\.\w+$", ast.unparse(call.func))]
        overlooked += [f"{path.name}: {ast.unparse(call)}" for call in logs if not names & _texts(call)]

    assert overlooked == ["worklog.py: _log.log(level, event, **facts)"]


def _texts(call: ast.Call) -> set[str]:
    return {node.value for node in call.args if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_levels_and_facts_are_found_in_every_way_of_logging() -> None:
    source = """
_log.info("a.plain", run=run)
_log.exception("a.mistake", check=1)
self._log("run.damaged", {"run": 1, **facts})
facts = {"problem": 2}
say = _log.debug if quiet else _log.info
say("a.chosen", one=1)
logger().log(level, "a.library", said=2)
other("not.logged", two=2)
"""

    assert sorted(logged_in(source)) == [
        ("a.chosen", ["debug", "info"], ["one"]),
        ("a.library", ["as it came"], ["said"]),
        ("a.mistake", ["error"], ["check"]),
        ("a.plain", ["info"], ["run"]),
        ("run.damaged", ["warning"], ["run", "problem"]),
    ]
