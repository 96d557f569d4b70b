"""Records have one JSON: what commands print is what pydantic, and so the HTTP API, writes and documents."""

import json
from dataclasses import is_dataclass
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from worker.cli.terminal.console import json_text
from worker.operations import records
from worker.operations.records import (
    AttemptRecord,
    DeadlineRecord,
    EndRecord,
    EventRecord,
    InputRecord,
    JobReference,
    Record,
    RunLinks,
    RunRecord,
    StatisticsRecord,
    as_json,
    camel_case,
)

AT = datetime(2027, 3, 22, 7, 0, 0, 250_000, tzinfo=UTC)
ATTEMPT = AttemptRecord(
    attempt=1,
    token="il-1",
    job=JobReference(type="glue", id="jr_1"),
    started_at=AT,
    ended_at=None,
    outcome=None,
    category=None,
    reason="",
)
RUN = RunRecord(
    pipeline="orders-daily",
    schedule="stream",
    period="2027-03-22",
    run_id="r1",
    state="POLLING",
    status="running",
    since=AT,
    created_at=AT.replace(microsecond=0),
    attempt=1,
    attempts=(ATTEMPT,),
    deadline=DeadlineRecord(warning_at=None, breach_at=AT, verdict=None),
    inputs={"orders_export#2027-03-22": InputRecord(hash="h", data={"row_count": 1200, "nested": {"a_b": [1, None]}})},
    outputs={"result": {"seen_rows": 1}},
    links=RunLinks(page="/runs/orders-daily/stream/2027-03-22"),
)
EVENT = EventRecord(
    id="e1",
    event_type="JOB_FAILED",
    at=AT,
    pipeline="p",
    schedule="s",
    period="2027-03-22",
    message="m",
    detail={"x": 1},
)
STATISTICS = StatisticsRecord(
    group={"day": "2027-03-22"},
    runs=3,
    completed=2,
    failed=1,
    cancelled=0,
    success_rate=0.6667,
    duration_p50="41m",
    duration_p90=None,
    deadlines=0,
    deadlines_met=0,
)


@pytest.mark.parametrize("record", [RUN, EVENT, STATISTICS, EndRecord(count=1, complete=False, next="c")], ids=type)
def test_pydantic_writes_what_commands_print(record: Record) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(type(record))

    assert json.loads(adapter.dump_json(record, by_alias=True)) == json.loads(json_text(as_json(record)))


def test_names_are_in_camel_case_and_producers_names_stay() -> None:
    shown = as_json(RUN)

    assert {"runId", "createdAt", "waitsFor"} <= shown.keys()
    assert shown["inputs"] == {
        "orders_export#2027-03-22": {
            "hash": "h",
            "data": {"row_count": 1200, "nested": {"a_b": [1, None]}},
            "size": None,
        }
    }
    assert shown["since"] == "2027-03-22T07:00:00.250000Z"
    assert camel_case("duration_p50") == "durationP50"


@pytest.mark.parametrize("kind", [kind for kind in get_args(Record) if kind is not AttemptRecord])
def test_every_record_has_a_type_and_a_schema_with_the_same_names(kind: type[Any]) -> None:
    schema = TypeAdapter(kind).json_schema(by_alias=True)

    assert is_dataclass(kind)
    assert "type" in schema["properties"]
    assert all("_" not in name for name in schema["properties"])
    assert schema.get("description"), "the reference is made from it"


def test_records_need_no_library() -> None:
    assert not {name for name in vars(records) if name in {"pydantic", "msgspec", "fastapi"}}
