"""`interlock dlq`: what is listed, shown, asked to be replayed and let go of."""

import asyncio
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from consumers.delivery.retry import GivenUp
from consumers.streams.parking import Parking
from consumers.streams.source import Position, Record
from tests.support.builders.cli_runs import in_store
from tests.support.builders.command_line import TODAY, interlock, records
from tests.support.clock.manual import ManualClock
from worker.cli.commands.dlq import run_show, show_letter
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_session import StoreAccess
from worker.config.store_setting import GROUP
from worker.core.model.values import Json
from worker.operations.dead_letters import DeadLetterSelector
from worker.store.repos.delivery.dead_letter_replays import Replays
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.delivery.parked_keys import ParkedKeys
from worker.store.table import Change, ChangeKind, Key, TableName, Tables

ID = "00000000000000000042@1772539200000"
SOURCE = "feed.control"


async def park(tables: Tables) -> None:
    """Do as a consumer does with poison."""
    key = Key("PIPELINE#orders", "SENSOR#ready")
    image = {"PK": key.pk, "SK": key.sk, "data": {"rows": 7}}
    change = Change(position=42, table=TableName.CONTROL, key=key, kind=ChangeKind.INSERT, image=image, at=TODAY)
    parking = Parking(
        stream=SOURCE, letters=DeadLetters(tables), keys=ParkedKeys(tables, GROUP), clock=ManualClock(TODAY)
    )
    lanes = await parking.parked()
    await lanes.park("a lane", Record(Position(ID), change), GivenUp("not a known event", ("tried once",)))


async def parked_keys(tables: Tables) -> int:
    return len(await ParkedKeys(tables, GROUP).list(SOURCE))


async def replays_asked_for(tables: Tables) -> list[str]:
    return [request.id for request in await Replays(tables, GROUP).list()]


@pytest.fixture
def poisoned(here: Path) -> Path:
    interlock("store", "init")
    in_store(park)
    return here


@pytest.mark.usefixtures("here")
def test_a_store_without_dead_letters_says_so() -> None:
    interlock("store", "init")

    listed = interlock("dlq", "list")

    assert (listed.exit_code, listed.stdout) == (0, "0 dead letters\n")


@pytest.mark.usefixtures("poisoned")
def test_a_dead_letter_is_listed_with_its_reason_and_asks_for_attention_by_the_exit_code() -> None:
    listed, as_json = interlock("dlq", "list"), interlock("dlq", "list", "--json")

    assert listed.exit_code == as_json.exit_code == 1
    assert f"{SOURCE} {ID}" in listed.stdout
    assert "not a known event" in listed.stdout
    [record] = records(as_json.stdout)
    assert (record["source"], record["id"], record["history"]) == (SOURCE, ID, ["tried once"])


@pytest.mark.usefixtures("poisoned")
def test_a_dead_letter_is_shown_with_the_whole_record() -> None:
    shown = json.loads(interlock("dlq", "show", SOURCE, ID).stdout)

    assert shown["reason"] == "not a known event"
    assert shown["body"]["image"]["data"] == {"rows": 7}


@pytest.mark.usefixtures("poisoned")
def test_a_pipe_gets_a_dead_letter_as_one_line_with_or_without_asking_for_json() -> None:
    shown, as_json = interlock("dlq", "show", SOURCE, ID), interlock("dlq", "show", SOURCE, ID, "--json")

    assert (shown.exit_code, as_json.exit_code) == (0, 0)
    assert shown.stdout == as_json.stdout
    assert len(shown.stdout.splitlines()) == 1


@pytest.mark.usefixtures("poisoned")
def test_a_terminal_gets_lines_for_people_unless_json_is_asked_for() -> None:
    def shown(*, as_json: bool) -> list[str]:
        out = io.StringIO()
        screen = Screen(out=Console(file=out, force_terminal=True, width=100, color_system=None))
        access = StoreAccess(url="sqlite:///interlock.db", clock=ManualClock(TODAY))
        assert asyncio.run(run_show(screen, access, DeadLetterSelector(SOURCE, ID), as_json=as_json)) == 0
        return out.getvalue().splitlines()

    assert shown(as_json=False)[0] == f"{SOURCE} {ID}"
    [line] = shown(as_json=True)
    assert json.loads(line)["id"] == ID


def test_a_person_sees_one_thing_below_another_and_a_message_in_json_as_such() -> None:
    out = io.StringIO()
    screen = Screen(out=Console(file=out, force_terminal=True, width=100, color_system=None))
    letter = DeadLetter(id="2f9d", source="queue.sensors", at=TODAY, reason="no rule", history=("once", "twice"))
    content: dict[str, Json] = {"body": '{"rows": 0.10, "keys": ["a"]}', "receives": 5, "note": "[draft]", "none": []}

    show_letter(screen, letter, content)

    assert (
        out.getvalue()
        == """\
queue.sensors 2f9d
  at      2027-03-22T12:00:00.000Z
  reason  no rule
  tried   once
          twice
what it holds
{
  "body": {
    "rows": 0.10,
    "keys": [
      "a"
    ]
  },
  "receives": 5,
  "note": "[draft]",
  "none": []
}
"""
    )


def test_a_message_nested_too_deeply_is_shown_as_the_text_it_is() -> None:
    out = io.StringIO()
    screen = Screen(out=Console(file=out, force_terminal=True, width=100, color_system=None))
    letter = DeadLetter(id="2f9d", source="queue.sensors", at=TODAY, reason="no rule")

    show_letter(screen, letter, {"body": "[" * 5_000 + "]" * 5_000})

    assert out.getvalue().splitlines()[-2].startswith('  "body": "[[[')


@pytest.mark.usefixtures("poisoned")
def test_dropping_a_letter_releases_its_key() -> None:
    assert in_store(parked_keys) == 1

    dropped = interlock("dlq", "drop", SOURCE, ID, "--yes")

    assert (dropped.exit_code, dropped.stdout) == (
        0,
        "dropped; its row is processed again from its next change\n",
    )
    assert in_store(parked_keys) == 0
    assert interlock("dlq", "list").exit_code == 0


@pytest.mark.usefixtures("poisoned")
def test_nothing_is_dropped_without_consent() -> None:
    refused = interlock("dlq", "drop", SOURCE, ID)

    assert refused.exit_code == 2
    assert "add --yes" in refused.stderr
    assert in_store(parked_keys) == 1


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("command", [["show"], ["drop", "--yes"], ["replay"]])
def test_a_letter_that_is_not_there_is_said_to_be_gone(command: list[str]) -> None:
    name, *options = command
    missed = interlock("dlq", name, SOURCE, "none", *options)

    assert missed.exit_code == 2
    assert f"there is no dead letter {SOURCE} none" in missed.stderr


@pytest.mark.usefixtures("poisoned")
def test_an_unknown_source_is_answered_with_the_known_ones() -> None:
    wrong = interlock("dlq", "show", "feed.contrl", ID)

    assert wrong.exit_code == 2
    assert "known are feed.control" in wrong.stderr


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("words", [[SOURCE, ID], [SOURCE], ["--all"]])
def test_a_replay_is_asked_for_and_the_letter_stays_until_a_worker_has_done_it(words: list[str]) -> None:
    asked = interlock("dlq", "replay", *words)

    assert (asked.exit_code, asked.stdout) == (0, "Replay requested for 1 dead letter.\n")
    assert asked.stderr.splitlines() == [
        "    a worker replays within 30 seconds; `interlock dlq list` shows what failed again",
        "No worker is running on this store. Start one with `interlock run`; until then nothing is processed.",
    ]
    assert in_store(replays_asked_for) == [ID]
    assert interlock("dlq", "list").exit_code == 1


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("words", [[], [SOURCE, "--all"]])
def test_a_replay_of_nobody_knows_what_is_refused(words: list[str]) -> None:
    refused = interlock("dlq", "replay", *words)

    assert refused.exit_code == 2
    assert "name a SOURCE, or add --all" in refused.stderr
    assert in_store(replays_asked_for) == []


@pytest.mark.usefixtures("here")
def test_nothing_to_replay_is_no_problem() -> None:
    interlock("store", "init")

    assert interlock("dlq", "replay", "--all").stdout == "Replay requested for 0 dead letters.\n"


async def write_many(tables: Tables) -> None:
    letters = DeadLetters(tables)
    for number in range(1_001):
        await letters.put(DeadLetter(id=f"m{number:04}", source="queue.alerts", at=TODAY, reason="no"), b"", now=TODAY)


@pytest.mark.usefixtures("here")
def test_however_many_letters_there_are_each_can_be_found_and_all_are_replayed() -> None:
    interlock("store", "init")
    in_store(write_many)

    assert interlock("dlq", "drop", "queue.alerts", "m1000", "--yes").stdout == "dropped\n"
    assert "1,000 dead letters" in interlock("dlq", "list").stdout.splitlines()[-1]
    interlock("dlq", "replay", "queue.alerts")
    assert len(in_store(replays_asked_for)) == 1_000


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["replay", SOURCE, ID], f"kim requested replay dead letter of {SOURCE} {ID}: fixed"),
        (["replay", SOURCE], f"kim requested replay dead letters of {SOURCE}: fixed"),
        (["replay", "--all"], "kim requested replay dead letters of all sources: fixed"),
        (["drop", SOURCE, ID, "--yes"], f"kim requested drop dead letter of {SOURCE} {ID}: fixed"),
    ],
)
def test_who_replays_or_drops_a_dead_letter_is_recorded_with_the_reason(words: list[str], said: str) -> None:
    interlock("dlq", *words, "--reason", "fixed", "--as", "kim")

    recorded = records(interlock("events", "--type", "OPERATOR_ACTION", "--json").stdout)

    assert [event["message"] for event in recorded] == [said]


@pytest.mark.usefixtures("poisoned")
def test_a_drop_without_consent_records_nothing() -> None:
    interlock("dlq", "drop", SOURCE, ID)

    assert not records(interlock("events", "--type", "OPERATOR_ACTION", "--json").stdout)
