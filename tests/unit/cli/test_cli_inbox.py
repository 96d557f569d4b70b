"""`interlock inbox`: what is shown of a message, what is stored by hand, how a bucket is noted before the first day."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from consumers.inbox.consumer import SensorInbox
from consumers.inbox.folder import FolderObjects, FolderWatch
from consumers.inbox.objects import ObjectGone
from consumers.inbox.rules import BucketPrefix
from consumers.inbox.rules_file import rules_of
from consumers.inbox.s3 import ListedObject
from consumers.inbox.seeding import Seeder, SeedProgress
from tests.support.builders.cli_runs import ORDERS, a_store
from tests.support.builders.command_line import interlock, records
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.inbox import RULES, InboxWorld, an_object, message, notification
from worker.core.errors import ConfigError, Rejected, RetryLater

EXAMPLES = Path(__file__).parents[3] / "examples/inbox"


@pytest.fixture(autouse=True)
def files(here: Path) -> None:
    (here / "inbox.yaml").write_text(RULES)


def a_message(here: Path, body: object) -> str:
    (here / "message.json").write_text(json.dumps(body))
    return "message.json"


# --- check and test ---------------------------------------------------------------------------------------------------


def test_rules_are_checked_with_the_place_of_each_problem(here: Path) -> None:
    (here / "wrong.yaml").write_text("rules:\n  - {name: a, pipeline: p, objet: {}}\n")

    good, wrong = interlock("inbox", "check", "inbox.yaml"), interlock("inbox", "check", "wrong.yaml")

    assert (good.exit_code, good.stdout) == (0, "inbox.yaml: 3 rules, valid\n")
    assert wrong.exit_code == 1
    assert "wrong.yaml:2:28: error: rules[0].objet: `objet` is not a key here; did you mean `object`?" in wrong.stdout
    assert "rules[0].sensor: is required" in wrong.stdout
    assert interlock("inbox", "check", "none.yaml").exit_code == 2


def test_a_message_is_shown_as_the_sensor_it_would_become() -> None:
    result = interlock("inbox", "test", EXAMPLES / "messages/s3.json", "--rules", EXAMPLES / "inbox.yaml", "--json")

    [found] = records(result.stdout)
    assert result.exit_code == 0
    assert found == {
        "type": "inbox",
        "news": "s3://example-landing/orders/dt=2026-03-03/part-7.parquet created",
        "rule": "orders-export",
        "pipeline": "orders-daily",
        "sensor": "orders-export#2026-03-03",
        "period": "2026-03-03",
        "fields": {
            "status": "complete",
            "part": "7",
            "bytes": 48213,
            "object": "s3://example-landing/orders/dt=2026-03-03/part-7.parquet",
        },
    }


def test_a_message_may_come_by_standard_input_and_rules_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_INBOX", RULES)

    result = interlock("inbox", "test", "-", typed='{"kind": "load", "table": "facts", "rows": 9}')

    assert result.exit_code == 0
    assert "sensor    facts" in result.stdout
    assert "the day it arrives" in result.stdout


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (notification(an_object("other/a.csv")), "no rule matches it"),
        (notification(an_object("orders/2026-13-13/a.csv")), "no period such as"),
        ({"Records": [7]}, "cannot be understood"),
    ],
)
def test_what_could_not_be_used_is_told_with_exit_code_one(here: Path, body: object, said: str) -> None:
    result = interlock("inbox", "test", a_message(here, body), "--rules", "inbox.yaml")

    assert result.exit_code == 1
    assert said in result.stdout + result.stderr


@pytest.mark.parametrize("command", ["test", "put"])
def test_a_message_that_is_no_json_is_told_to_whoever_has_it_at_hand(here: Path, command: str) -> None:
    interlock("store", "init")

    result = interlock("inbox", command, "-", "--rules", "inbox.yaml", typed='{"a"')

    assert result.exit_code == 1
    assert "the message - cannot be understood: it is not JSON" in result.stderr
    assert "dead letter" not in result.stderr


def test_without_rules_it_is_said_where_they_come_from(here: Path) -> None:
    result = interlock("inbox", "test", a_message(here, {}))

    assert result.exit_code == 2
    assert "--rules" in result.stderr
    assert "INTERLOCK_INBOX" in result.stderr


# --- put --------------------------------------------------------------------------------------------------------------


def test_a_message_taken_in_by_hand_becomes_a_sensor_once(here: Path) -> None:
    a_store(here)
    file = a_message(here, notification(an_object()))

    first, second = (interlock("inbox", "put", file, "--rules", "inbox.yaml") for _ in range(2))

    assert first.stdout == "seen 1: 1 used, 0 skipped, 0 unmatched, 0 failed\n"
    assert second.stdout == "seen 1: 0 used, 1 skipped, 0 unmatched, 0 failed\n"
    [sensor] = records(interlock("sensor", "get", "orders", "export", "--period", "2026-03-03").stdout)
    assert sensor["data"] == {"event": "created", "etag": "e1"}


def test_a_message_whose_sensor_will_begin_nothing_is_taken_in_with_a_warning(here: Path) -> None:
    a_store(here, ORDERS.replace("key: ready, check: equals, field: status, value: done", "key: export, check: exists"))
    file = a_message(here, notification(an_object("orders/2062-03-03/a.csv")))

    result = interlock("inbox", "put", file, "--rules", "inbox.yaml")

    assert result.stdout == "seen 1: 1 used, 0 skipped, 0 unmatched, 0 failed\n"
    assert "warning: export#2062-03-03 will begin no run: 2062-03-03 begins more than 48h from now" in result.stderr


# --- seed -------------------------------------------------------------------------------------------------------------


class ABucket:
    """Some objects, two to a page. `fails_after` pages it does not answer."""

    def __init__(self, keys: Sequence[str], fails_after: int | None = None) -> None:
        self._keys, self._fails_after = sorted(keys), fails_after
        self.asked: list[str] = []

    async def page(self, prefix: str, after: str) -> Sequence[ListedObject]:
        if len(self.asked) == self._fails_after:
            raise RetryLater("slow down")
        self.asked.append(after)
        return [ListedObject(key, "e1") for key in self._keys if key.startswith(prefix) and key > after][:2]


KEYS = [f"orders/2026-03-0{day}/a.csv" for day in range(1, 6)]
PLACE = BucketPrefix(bucket="landing", prefix="orders/")


async def seeded(world: InboxWorld, bucket: ABucket, after: str = "") -> SeedProgress:
    *_, last = [each async for each in Seeder(world.tables, world.rules, world.clock).run(bucket, PLACE, after)]
    return last


@on_virtual_time
async def test_what_was_noted_is_no_news_and_what_changes_later_is() -> None:
    world = InboxWorld()

    progress = await seeded(world, ABucket([*KEYS, "orders/readme.txt", "zebra"]))
    await world.take_in(notification(*(an_object(key) for key in KEYS)))
    await world.take_in(notification(an_object(KEYS[0], "e2", "02")))

    assert progress == SeedProgress(listed=6, unmatched=1, noted=5, after="orders/readme.txt")
    assert (world.inbox.counts.skipped, world.inbox.counts.used) == (5, 1)
    assert await world.sensor(key="export#2026-03-02") is None
    assert await world.sensor(key="export#2026-03-01") == {"event": "created", "etag": "e2"}


@on_virtual_time
async def test_what_was_noted_is_no_news_either_when_its_message_comes_a_second_time() -> None:
    world = InboxWorld()
    await seeded(world, ABucket(KEYS))

    await world.inbox.handle(message(notification(*(an_object(key) for key in KEYS)), receive_count=2))

    assert (world.inbox.counts.skipped, world.inbox.counts.used) == (5, 0)


@on_virtual_time
async def test_it_goes_on_where_it_stopped_and_a_second_time_writes_nothing() -> None:
    world = InboxWorld()
    going = Seeder(world.tables, world.rules, world.clock).run(ABucket(KEYS, fails_after=1), PLACE)
    stopped = await anext(going)
    with pytest.raises(RetryLater):
        await anext(going)

    rest = await seeded(world, bucket := ABucket(KEYS), stopped.after)
    again = await seeded(world, ABucket(KEYS))

    assert stopped == SeedProgress(listed=2, noted=2, after=KEYS[1])
    assert bucket.asked[0] == KEYS[1]
    assert (rest.noted, again.noted, again.known) == (3, 0, 5)


@on_virtual_time
async def test_an_object_that_is_told_while_it_is_noted_is_told_once() -> None:
    world = InboxWorld()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(world.take_in(notification(*(an_object(key) for key in KEYS))))
        tasks.create_task(seeded(world, ABucket(KEYS)))
    before = world.inbox.counts.used
    await world.take_in(notification(*(an_object(key) for key in KEYS)))

    assert world.inbox.counts.used == before


@pytest.mark.parametrize(
    ("place", "said"), [("landing/orders", "no place in S3"), ("s3://landing/other/", "no rule of the inbox matches")]
)
def test_a_place_that_no_rule_is_about_is_refused(here: Path, place: str, said: str) -> None:
    a_store(here)

    result = interlock("inbox", "seed", place, "--rules", "inbox.yaml")

    assert result.exit_code == 2
    assert said in result.stderr


def test_only_rules_about_objects_are_asked() -> None:
    world = InboxWorld(rules_of("rules: [{name: a, event: {source: [x]}, pipeline: p, sensor: s}]"))

    assert not Seeder(world.tables, world.rules, world.clock).is_about(PLACE)


# --- a folder as a bucket ---------------------------------------------------------------------------------------------

PARTS = """\
rules:
  - name: parts
    object: {bucket: landing, key: "orders/${date}/*.csv"}
    pipeline: orders
    sensor: parts
    period: ${date}
    collect: {until: {manifest: "orders/${date}/manifest.json"}}
"""


def write_parts(here: Path) -> Path:
    folder = here / "landing/orders/2026-03-03"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('["orders/2026-03-03/a.csv", "orders/2026-03-03/b.csv"]')
    (folder / "a.csv").write_text("1")
    (folder / "unfinished.csv.tmp").write_text("1")
    return folder


@on_virtual_time
async def test_a_folder_is_watched_as_a_bucket_and_its_files_are_reported_once_for_each_content(here: Path) -> None:
    folder, world = write_parts(here), InboxWorld(rules=rules_of(PARTS))
    inbox = SensorInbox(world.tables, world.rules, world.clock, FolderObjects(here / "landing", "landing"))
    watch = FolderWatch(here / "landing", "landing", world.clock, inbox.take_in)

    assert [await watch.look() for _ in range(3)] == [0, 2, 0]
    (folder / "b.csv").write_text("2")
    assert [await watch.look() for _ in range(3)] == [0, 1, 0]
    (folder / "a.csv").write_text("changed")
    assert [await watch.look() for _ in range(3)] == [0, 1, 0]

    found = await world.sensor(key="parts#2026-03-03")
    assert found is not None
    assert (found["complete"], found["count"], found["bytes"]) == (True, 2, 8)
    other = FolderWatch(here / "landing", "landing", world.clock, inbox.take_in)  # after a restart
    assert [await other.look() for _ in range(2)] == [0, 3]
    assert await world.sensor(key="parts#2026-03-03") == found


@on_virtual_time
async def test_a_folder_holds_only_its_own_objects(here: Path) -> None:
    write_parts(here)
    (here / "secret.csv").write_text("1")
    objects = FolderObjects(here / "landing", "landing")

    with pytest.raises(Rejected, match="outside"):
        await objects.read("landing", "../secret.csv", 10)
    with pytest.raises(ConfigError, match="not for elsewhere"):
        await objects.state("elsewhere", "a")
    with pytest.raises(Rejected, match="is the most"):
        await objects.read("landing", "orders/2026-03-03/manifest.json", 5)
    with pytest.raises(ObjectGone):
        await objects.read("landing", "orders/none", 5)
    with pytest.raises(ObjectGone):
        await objects.copy("landing", "orders/2026-03-03/a.csv", "other", to_bucket="landing", to_key="b")


def test_the_parts_of_a_sensor_are_listed_and_a_cut_list_says_so(here: Path) -> None:
    a_store(here, ORDERS)
    (here / "parts.yaml").write_text(PARTS.replace('manifest: "orders/${date}/manifest.json"', "count: 2"))
    file = a_message(here, notification(*(an_object(f"orders/2026-03-03/{name}.csv") for name in "ba")))
    assert interlock("inbox", "put", file, "--rules", "parts.yaml").exit_code == 0

    whole = interlock("inbox", "parts", "orders", "parts#2026-03-03")
    cut = interlock("inbox", "parts", "orders", "parts#2026-03-03", "--json", "--limit", "1")
    wrong = interlock("inbox", "parts", "orders", "parts")

    assert whole.stdout.splitlines() == [
        "orders/2026-03-03/a.csv  12 bytes  there",
        "orders/2026-03-03/b.csv  12 bytes  there",
        "2 objects: all 2 parts arrived",
    ]
    part, cut_off = records(cut.stdout)
    assert (part["key"], cut_off["type"]) == ("orders/2026-03-03/a.csv", "truncated")
    assert (cut_off["what"], cut_off["shown"], cut_off["total"]) == ("objects", 1, 2)
    assert wrong.exit_code != 0
    assert "has no sensor 'parts'" in wrong.stderr
