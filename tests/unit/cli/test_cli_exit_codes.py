"""What does not exist has one exit code in every command: whoever names it made a slip, and must be told apart."""

from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.cli_runs import PERIOD, a_store, a_stored_run, in_store
from tests.support.builders.command_line import TODAY, interlock, loaded_commands
from worker.cli.terminal.store_session import Exit
from worker.core.model.events import Event
from worker.core.run.state import State
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.events import event_write
from worker.store.repos.runs import Runs
from worker.store.table import Tables

# Every command that takes a pipeline by its name, with one that nothing has.
UNKNOWN_PIPELINES = [
    ["status", "ordres"],
    ["status", "ordres", "--watch"],
    ["explain", "ordres"],
    ["explain", "ordres", PERIOD],
    ["history", "ordres"],
    ["probe", "list", "ordres"],
    ["inbox", "parts", "ordres", f"parts#{PERIOD}"],
    ["history", "ordres", PERIOD],
    ["history", "ordres", PERIOD, "--schedule", "stream"],
    ["events", "--pipeline", "ordres"],
    ["events", "--pipeline", "ordres", "--follow"],
    ["runs", "list", "--pipeline", "ordres"],
    ["runs", "stats", "--pipeline", "ordres"],
    ["runs", "inputs", "--pipeline", "ordres"],
    ["runs", "show", "ordres", PERIOD],
    ["runs", "rerun", "--pipeline", "ordres", "--reason", "x", "--yes"],
    ["runs", "cancel", "--pipeline", "ordres", "--reason", "x", "--yes"],
    ["runs", "delete", "ordres", PERIOD, "--reason", "x", "--yes"],
    ["logs", "ordres", PERIOD],
    ["reruns", "list", "--pipeline", "ordres"],
    ["replays", "list", "--pipeline", "ordres"],
    ["late-data", "list", "--pipeline", "ordres"],
    ["trigger", "ordres", PERIOD, "--reason", "x"],
    ["rerun", "ordres", PERIOD],
    ["replay", "ordres", PERIOD, PERIOD, "--yes"],
    ["cancel", "ordres", PERIOD, "--reason", "x"],
    ["pause", "ordres", "--reason", "x"],
    ["resume", "ordres"],
    ["pipelines", "show", "ordres"],
    ["pipelines", "remove", "ordres", "--yes"],
    ["schedule", "next", "ordres"],
    ["schedule", "missed", "ordres"],
    ["sensor", "get", "ordres", "ready"],
    ["sensor", "list", "ordres"],
    ["sensor", "remove", "ordres", "ready", "--yes"],
    ["migrate", "check", "ordres"],
    ["migrate", "accept", "ordres"],
    ["migrate", "compare", "ordres"],
    ["lineage", "ordres"],
    ["cascade", "ordres", PERIOD, "--reason", "x"],
    ["plan", ".", "--pipeline", "ordres"],
    ["plan", ".", "--against", ".", "--pipeline", "ordres"],
]
# It takes a name that nothing has yet: sensors may come before their pipeline. It warns.
ANY_NAME = {"sensor put"}
OTHERS = [
    ["explain", "orders", "--schedule", "noon"],
    ["runs", "show", "orders", "2027-01-01"],
    ["history", "orders", "2027-01-01"],
    ["history", "orders", "2027-01-01", "--schedule", "noon"],
    ["rerun", "orders", PERIOD, "--schedule", "noon"],
    ["cancel", "orders", "2027-01-01", "--reason", "x"],
    ["cancel", "orders", "2027-01-01", "--reason", "x", "--dry-run"],
    ["sensor", "get", "orders", "nothing"],
    ["sensor", "remove", "orders", "nothing", "--yes"],
    ["dlq", "list", "nowhere"],
    ["dlq", "show", "nowhere", "x"],
    ["dlq", "show", "feed.control", "x"],
    ["dlq", "replay", "nowhere"],
    ["dlq", "replay", "feed.control", "x"],
    ["dlq", "drop", "nowhere", "x", "--yes"],
    ["dlq", "drop", "feed.control", "x", "--yes"],
    ["leases", "nowhere"],
    ["events", "--type", "NOTHING"],
    ["watchdog", "run", "--check", "nothing"],
]


@cache
def leaves() -> Mapping[str, Any]:
    """Every command, by the words that name it. Kept: to make them all takes as long as to collect a thousand tests."""
    found: dict[str, Any] = {}
    for name, command in loaded_commands().items():
        members = getattr(command, "commands", {})
        found |= {f"{name} {member}": leaf for member, leaf in members.items()} or {name: command}
    return found


def names_pipelines(command: Any) -> bool:  # noqa: ANN401  the library's own type is not for others
    return any(each.name in {"pipeline", "names"} for each in command.params)


def takes_json(words: list[str]) -> bool:
    found = next(command for name, command in leaves().items() if " ".join(words).startswith(name))
    return any("--json" in each.opts for each in found.params) and "--follow" not in words


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    a_store(here)

    async def fill(tables: Tables) -> None:
        letter = DeadLetter(id="1", source="feed.control", at=TODAY, reason="no")
        await DeadLetters(tables).put(letter, b"", now=TODAY)
        await Runs(tables).save(a_stored_run(State.COMPLETED, "c", since=TODAY - timedelta(hours=1)))

    in_store(fill)


@pytest.mark.parametrize("words", [*UNKNOWN_PIPELINES, *OTHERS], ids=" ".join)
def test_what_does_not_exist_is_a_mistake_of_whoever_named_it(words: list[str]) -> None:
    result = interlock(*words)

    assert result.exit_code == Exit.WRONG, result.output
    assert result.output


@pytest.mark.parametrize("words", [words for words in (*UNKNOWN_PIPELINES, *OTHERS) if takes_json(words)], ids=" ".join)
def test_a_program_gets_the_same_code(words: list[str]) -> None:
    result = interlock(*words, "--json")

    assert result.exit_code == Exit.WRONG, result.output
    assert result.output


@pytest.mark.parametrize("words", [words for words in UNKNOWN_PIPELINES if words[0] != "plan"], ids=" ".join)
def test_a_mistyped_pipeline_is_answered_with_the_one_that_was_meant(words: list[str]) -> None:
    assert "did you mean `orders`?" in interlock(*words).stderr


def test_a_sensor_may_come_before_its_pipeline() -> None:
    result = interlock("sensor", "put", "ordres", "ready", "status=done")

    assert result.exit_code == Exit.DONE
    assert "there is no pipeline ordres in the store; did you mean `orders`?" in result.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["cancel", "orders", PERIOD, "--reason", "x"], Exit.PROBLEMS),  # it has ended: nothing to do
        (["dlq", "list", "feed.control"], Exit.PROBLEMS),  # there are dead letters
        (["sensor", "list", "orders"], Exit.DONE),
        (["events", "--pipeline", "orders"], Exit.DONE),
        (["explain", "orders", "2027-01-01"], Exit.DONE),  # why there is no run is an answer
    ],
)
def test_what_exists_gets_an_answer(words: list[str], code: Exit) -> None:
    assert interlock(*words).exit_code == code


def test_what_outlived_its_pipeline_is_shown() -> None:
    in_store(lambda tables: tables.commit(event_write(Event(id="e", type="JOB_FAILED", at=TODAY, pipeline="orders"))))
    assert interlock("sensor", "put", "orders", "ready", "status=done").exit_code == 0
    assert interlock("pipelines", "remove", "orders", "--yes").exit_code == 0

    assert interlock("sensor", "list", "orders").exit_code == Exit.DONE
    assert interlock("events", "--pipeline", "orders").exit_code == Exit.DONE
    assert interlock("history", "orders", PERIOD, "--schedule", "stream").exit_code == Exit.DONE


def test_every_command_that_takes_a_pipeline_is_in_the_table() -> None:
    takers = {name for name, command in leaves().items() if names_pipelines(command)}
    tried = {name for name in takers if any(" ".join(words).startswith(f"{name} ") for words in UNKNOWN_PIPELINES)}

    assert takers - tried == ANY_NAME


def test_the_codes_are_explained_where_they_are_listed() -> None:
    listed = {name: command.help or "" for name, command in leaves().items() if names_pipelines(command)}

    assert {name for name, text in listed.items() if "(also if there is no such pipeline" not in text} == set()
