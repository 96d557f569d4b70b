"""Requests on every backend: one row per run and kind, asked in place of the one that was seen."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tests.contract.storevalues import run_key_of
from worker.core.model import keys
from worker.store.repos.requests import CancelRequest, Requests, RerunRequest, TriggerRequest, rerun_request_of
from worker.store.table import Key, Put, StaleWrite, TableName, Tables, Value

AT = "2026-03-03T12:00:00Z"
NOW = datetime(2026, 3, 3, 12, tzinfo=UTC)
FIRST = RerunRequest(reason="fixed the export", requested_at=AT, id="a1", supersede=True, note="ticket 7")
SECOND = RerunRequest(reason="again", requested_at=AT, id="b2")
TRIGGER = TriggerRequest(reason="came by mail", requested_at=AT, id="d4", by="mia")
CANCEL = CancelRequest(reason="not needed", requested_at=AT, id="c3", waive_sla=True)


async def test_a_request_comes_back_as_it_was_asked(tables: Tables) -> None:
    key, requests = run_key_of(), Requests(tables)

    await requests.ask_rerun(key, FIRST, None)
    await requests.ask_cancel(key, CANCEL, None)

    assert await requests.rerun_of(key) == FIRST
    assert await requests.cancel_of(key) == CANCEL


async def test_what_nobody_asked_for_is_not_there(tables: Tables) -> None:
    requests = Requests(tables)

    assert await requests.rerun_of(run_key_of()) is None
    assert await requests.cancel_of(run_key_of()) is None


async def test_a_request_takes_the_place_of_the_one_that_was_seen(tables: Tables) -> None:
    key, requests = run_key_of(), Requests(tables)
    await requests.ask_rerun(key, FIRST, None)

    await requests.ask_rerun(key, SECOND, FIRST)

    assert await requests.rerun_of(key) == SECOND


@pytest.mark.parametrize("seen", [None, SECOND])
async def test_a_request_that_nobody_saw_is_not_lost(tables: Tables, seen: RerunRequest | None) -> None:
    key, requests = run_key_of(), Requests(tables)
    await requests.ask_rerun(key, FIRST, None)

    with pytest.raises(StaleWrite):
        await requests.ask_rerun(key, SECOND, seen)

    assert await requests.rerun_of(key) == FIRST


async def test_a_cancellation_that_nobody_saw_is_not_lost(tables: Tables) -> None:
    key, requests = run_key_of(), Requests(tables)
    await requests.ask_cancel(key, CANCEL, None)

    with pytest.raises(StaleWrite):
        await requests.ask_cancel(key, CANCEL, None)


@pytest.mark.parametrize("extra", [{}, {"reason": "backfill", "requestedAt": AT}, {"requestedAt": Decimal(12)}])
async def test_a_row_of_others_is_understood_and_can_be_replaced(tables: Tables, extra: dict[str, Value]) -> None:
    key, requests = run_key_of(), Requests(tables)
    at = Key(keys.pipeline_pk(key.pipeline), keys.rerun_request_sk(key))
    await tables.commit(Put(TableName.CONTROL, {"PK": at.pk, "SK": at.sk, **extra}))

    seen = await requests.rerun_of(key)
    await requests.ask_rerun(key, SECOND, seen)

    assert seen is not None
    assert seen.reason in {"manual", "backfill"}
    assert await requests.rerun_of(key) == SECOND


async def test_a_trigger_request_is_not_replaced_until_it_was_answered(tables: Tables) -> None:
    key, requests = run_key_of(), Requests(tables)
    later = replace(TRIGGER, id="e5")
    await requests.ask_trigger(key, TRIGGER, NOW)

    with pytest.raises(StaleWrite):
        await requests.ask_trigger(key, later, NOW)
    assert await requests.trigger_of(key) == TRIGGER

    await requests.forget_trigger(key, later)  # another one, so nothing happens
    assert await requests.trigger_of(key) == TRIGGER
    await requests.forget_trigger(key, TRIGGER)
    await requests.forget_trigger(key, TRIGGER)
    assert await requests.trigger_of(key) is None
    await requests.ask_trigger(key, later, NOW)
    assert await requests.trigger_of(key) == later


def test_a_wish_uttered_twice_is_two_requests_and_a_row_read_twice_is_one() -> None:
    row: dict[str, Value] = {"reason": "again", "requestedAt": AT, "id": "b2"}

    assert rerun_request_of(row).identity == SECOND.identity
    assert rerun_request_of({**row, "id": "b3"}).identity != SECOND.identity
