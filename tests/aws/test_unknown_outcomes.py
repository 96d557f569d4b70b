"""A reply is lost: the commit is neither lost nor doubled, and never taken for another writer's."""

import pytest

from tests.aws.conftest import Rig, rig_on
from tests.support.aws.emulators import moto
from tests.support.aws.wire import Fault
from worker.core.errors import RetryLater
from worker.net.aws_client import ClientSettings
from worker.store.dynamodb.tables import DynamoTables
from worker.store.table import (
    COMMIT_ID,
    Absent,
    Check,
    Delete,
    Equals,
    Exists,
    Key,
    Put,
    Row,
    StaleWrite,
    TableName,
    Update,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("aws")]

CONTROL, EVENTS = TableName.CONTROL, TableName.EVENTS
RUN, GUARD, EVENT, LOCK = Key("p", "RUN"), Key("p", "GUARD"), Key("p", "1#DONE"), Key("p", "LOCK")


def row(key: Key, **attributes: str | int) -> Row:
    return {"PK": key.pk, "SK": key.sk, **attributes}


PUT = Put(CONTROL, row(RUN, version=2, by="us"), Equals("version", 1))
UPDATE = Update(table=CONTROL, key=RUN, set={"version": 2, "by": "us"}, condition=Equals("version", 1))
BLIND_PUT = Put(CONTROL, row(RUN, version=2, by="us"))
TRANSACTION = (
    Check(CONTROL, GUARD, Exists()),
    UPDATE,
    Put(EVENTS, row(EVENT, of="us"), Absent()),
    Delete(CONTROL, LOCK, Exists()),
)
COMMITS = {"put": (PUT,), "update": (UPDATE,), "blind put": (BLIND_PUT,), "transaction": TRANSACTION}
OPERATIONS = {"put": "PutItem", "update": "UpdateItem", "blind put": "PutItem", "transaction": "TransactWriteItems"}
THEIRS = Update(table=CONTROL, key=RUN, set={"version": 3, "by": "them"})


async def given_first_version(rig: Rig) -> None:
    await rig.other.commit(
        Put(CONTROL, row(RUN, version=1)),
        Put(CONTROL, row(GUARD)),
        Put(CONTROL, row(LOCK, owner="us")),
        Delete(EVENTS, EVENT),
    )


async def who_wrote(rig: Rig) -> tuple[object, object]:
    run = await rig.other.get(CONTROL, RUN)
    assert run is not None
    return run.get("by"), run["version"]


async def late_requests_arrive(rig: Rig) -> None:
    rig.wire.wait_for_late_requests()


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("kind", list(COMMITS))
async def test_a_broken_commit_is_applied_once(rig: Rig, kind: str, fault: Fault) -> None:
    await given_first_version(rig)
    rig.wire.break_next(OPERATIONS[kind], fault)

    await rig.ours.commit(*COMMITS[kind])

    assert await who_wrote(rig) == ("us", 2)
    if kind == "transaction":
        assert await rig.other.get(EVENTS, EVENT) is not None
        assert await rig.other.get(CONTROL, LOCK) is None


@pytest.mark.parametrize("kind", list(COMMITS))
async def test_a_commit_broken_again_and_again_is_applied_once(rig: Rig, kind: str) -> None:
    await given_first_version(rig)
    rig.wire.break_next(OPERATIONS[kind], Fault.DROPPED, Fault.THROTTLED, Fault.REPLY_LOST)

    await rig.ours.commit(*COMMITS[kind])

    assert await who_wrote(rig) == ("us", 2)


@pytest.mark.parametrize("kind", ["put", "update"])
async def test_a_request_that_arrives_late_does_not_undo_what_came_after(rig: Rig, kind: str) -> None:
    await given_first_version(rig)
    rig.wire.break_next(OPERATIONS[kind], Fault.LATE)
    await rig.ours.commit(*COMMITS[kind])
    await rig.other.commit(THEIRS)

    rig.wire.wait_for_late_requests()

    assert await who_wrote(rig) == ("them", 3)


@pytest.mark.parametrize("kind", ["put", "update"])
async def test_another_writer_between_two_tries_is_never_taken_for_us(rig: Rig, kind: str) -> None:
    await given_first_version(rig)
    rig.wire.break_next(OPERATIONS[kind], Fault.DROPPED)
    rig.clock.interruption = lambda: rig.other.commit(THEIRS)

    with pytest.raises(RetryLater, match="not known"):
        await rig.ours.commit(*COMMITS[kind])

    assert await who_wrote(rig) == ("them", 3)


async def test_a_transaction_knows_that_it_lost_to_another_writer_between_two_tries(rig: Rig) -> None:
    await given_first_version(rig)
    rig.wire.break_next("TransactWriteItems", Fault.DROPPED)
    rig.clock.interruption = lambda: rig.other.commit(THEIRS)

    with pytest.raises(StaleWrite) as refusal:
        await rig.ours.commit(*TRANSACTION)

    assert refusal.value.write is UPDATE
    assert refusal.value.row is not None
    assert refusal.value.row["by"] == "them"
    assert await rig.other.get(EVENTS, EVENT) is None


@pytest.mark.parametrize("kind", ["put", "update"])
async def test_what_was_applied_and_then_overwritten_is_not_called_stale(rig: Rig, kind: str) -> None:
    """`StaleWrite` would say that nothing was applied, which nobody can know here."""
    await given_first_version(rig)
    rig.wire.break_next(OPERATIONS[kind], Fault.REPLY_LOST)
    rig.wire.break_next("GetItem", Fault.THROTTLED)
    rig.clock.interruption = lambda: rig.other.commit(THEIRS)

    with pytest.raises(RetryLater, match="not known"):
        await rig.ours.commit(*COMMITS[kind])

    assert await who_wrote(rig) == ("them", 3)


async def test_a_transaction_that_was_applied_and_then_overwritten_is_known_as_applied(rig: Rig) -> None:
    await given_first_version(rig)
    rig.wire.break_next("TransactWriteItems", Fault.REPLY_LOST)
    rig.wire.break_next("GetItem", Fault.THROTTLED)
    rig.clock.interruption = lambda: rig.other.commit(THEIRS)

    await rig.ours.commit(*TRANSACTION)

    assert await who_wrote(rig) == ("them", 3)
    assert await rig.other.get(EVENTS, EVENT) is not None


async def test_a_refusal_is_told_at_once_when_nothing_was_in_doubt(rig: Rig) -> None:
    await given_first_version(rig)
    await rig.other.commit(THEIRS)
    rig.wire.operations.clear()

    with pytest.raises(StaleWrite) as refusal:
        await rig.ours.commit(UPDATE)

    assert refusal.value.row is not None
    assert refusal.value.row["by"] == "them"
    assert rig.wire.operations == {"UpdateItem": 1}


async def test_a_repeat_made_by_something_between_us_and_the_store_is_recognised(rig: Rig) -> None:
    """The first request was applied and answered to someone else, so all we see is the refusal of the second."""
    await given_first_version(rig)
    ours = DynamoTables(
        rig.names, rig.clock, ClientSettings(endpoint=rig.wire.url), new_commit_id=lambda: "the same one"
    )
    await ours.start()
    await ours.commit(UPDATE)

    await ours.commit(UPDATE)

    await ours.stop()
    run = await rig.other.get(CONTROL, RUN)
    assert run is not None
    assert run[COMMIT_ID] == "the same one"


@pytest.mark.parametrize("kind", ["put", "update", "transaction"])
async def test_a_first_try_that_arrives_just_before_the_second_is_recognised(rig: Rig, kind: str) -> None:
    await given_first_version(rig)
    rig.wire.break_next(OPERATIONS[kind], Fault.LATE)
    rig.clock.interruption = lambda: late_requests_arrive(rig)

    await rig.ours.commit(*COMMITS[kind])

    assert await who_wrote(rig) == ("us", 2)


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.DROPPED, Fault.FAILED_AFTER])
async def test_a_delete_without_a_condition_is_simply_sent_again(rig: Rig, fault: Fault) -> None:
    await given_first_version(rig)
    rig.wire.break_next("DeleteItem", fault)

    await rig.ours.commit(Delete(CONTROL, LOCK))

    assert await rig.other.get(CONTROL, LOCK) is None


async def test_a_conditional_delete_that_finds_its_row_gone_does_not_claim_to_have_done_it(rig: Rig) -> None:
    """No row is left to say who deleted it, so the answer is to reload."""
    await given_first_version(rig)
    rig.wire.break_next("DeleteItem", Fault.REPLY_LOST)

    with pytest.raises(RetryLater, match="not known"):
        await rig.ours.commit(Delete(CONTROL, LOCK, Equals("owner", "us")))


async def test_a_conditional_delete_that_never_arrived_is_sent_again(rig: Rig) -> None:
    await given_first_version(rig)
    rig.wire.break_next("DeleteItem", Fault.DROPPED)

    await rig.ours.commit(Delete(CONTROL, LOCK, Equals("owner", "us")))

    assert await rig.other.get(CONTROL, LOCK) is None


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_broken_check_is_asked_again(rig: Rig, fault: Fault) -> None:
    await given_first_version(rig)
    rig.wire.break_next("TransactWriteItems", fault)

    await rig.ours.commit(Check(CONTROL, GUARD, Exists()))


async def test_a_transaction_of_deletes_alone_is_recognised_by_its_token(rig: Rig) -> None:
    await given_first_version(rig)
    rig.wire.break_next("TransactWriteItems", Fault.REPLY_LOST)

    await rig.ours.commit(Delete(CONTROL, LOCK, Exists()), Delete(CONTROL, GUARD, Exists()))

    assert await rig.other.get_many(CONTROL, [LOCK, GUARD]) == {}


@pytest.mark.parametrize("kind", list(COMMITS))
async def test_a_commit_that_is_throttled_for_too_long_is_given_up_unapplied(rig: Rig, kind: str) -> None:
    await given_first_version(rig)
    rig.wire.break_next(OPERATIONS[kind], *[Fault.THROTTLED] * 4)

    with pytest.raises(RetryLater, match="given up after 4 tries"):
        await rig.ours.commit(*COMMITS[kind])

    assert await who_wrote(rig) == (None, 1)


async def test_a_read_survives_every_fault(rig: Rig) -> None:
    await given_first_version(rig)
    for fault in Fault:
        rig.wire.break_next("GetItem", fault)

        assert await rig.ours.get(CONTROL, RUN) is not None


async def test_a_store_that_does_not_know_request_tokens_does_not_fool_us() -> None:
    """moto applies a token twice: the repeat is refused by our own first try, at a row that does not carry its id."""
    async with rig_on(moto()) as rig:
        await given_first_version(rig)
        rig.wire.break_next("TransactWriteItems", Fault.LATE)
        rig.clock.interruption = lambda: late_requests_arrive(rig)

        await rig.ours.commit(BLIND_PUT, Delete(CONTROL, LOCK, Exists()))

        assert await who_wrote(rig) == ("us", 2)
