"""Event patterns: what matches, and what is refused when a pattern is read."""

from decimal import Decimal
from typing import ClassVar

import pytest

from consumers.outbox.patterns import CHOICES_MAX, BadEventPattern, parse_pattern
from worker.core.model.values import Json

EVENT: dict[str, Json] = {
    "source": "interlock",
    "detail-type": "JOB_FAILED",
    "detail": {
        "pipelineId": "orders-daily",
        "flag": True,
        "nothing": None,
        "empty": [],
        "tags": ["gold", "finance"],
        "parts": [{"name": "a", "rows": 1}, [{"name": "b", "rows": 2}], "loose"],
        "detail": {"delta": 120, "share": Decimal("0.5"), "rate": 0.1, "text": "120"},
    },
}


def does_match(pattern: Json) -> bool:
    return parse_pattern(pattern).matches(EVENT)


@pytest.mark.parametrize(
    "pattern",
    [
        {"source": ["interlock"]},
        {"detail-type": ["JOB_COMPLETED", "JOB_FAILED"]},
        {"source": ["interlock"], "detail": {"pipelineId": ["orders-daily"]}},
        {"detail": {"flag": [True]}},
        {"detail": {"nothing": [None]}},
        {"detail": {"tags": ["finance"]}},
        {"detail": {"detail": {"share": [0.5]}}},
        {"detail-type": [{"prefix": "JOB_"}]},
        {"detail-type": [{"anything-but": "SLA_MET"}]},
        {"detail-type": [{"anything-but": ["SLA_MET", "JOB_COMPLETED"]}]},
        {"detail-type": [{"anything-but": {"prefix": "DRY_RUN_"}}]},
        {"detail": {"detail": {"delta": [{"anything-but": 0}]}}},
        {"detail": {"pipelineId": [{"exists": True}]}},
        {"detail": {"nothing": [{"exists": True}]}},
        {"detail": {"scheduleId": [{"exists": False}]}},
        {"absent": {"deeper": [{"exists": False}]}},
        {"detail": {"detail": [{"exists": False}]}},
        {"detail": {"parts": {"name": ["b"]}}},
        {"detail": {"parts": {"name": ["b"], "rows": [2]}}},
        {"detail": {"parts": {"size": [{"exists": False}]}}},
        {"detail": {"detail": {"delta": [{"numeric": [">", 100]}]}}},
        {"detail": {"detail": {"delta": [{"numeric": [">=", 120, "<", 121]}]}}},
        {"detail": {"detail": {"rate": [{"numeric": ["=", Decimal("0.1")]}]}}},
        {"detail": {"detail": {"delta": [{"numeric": ["<", 0]}, 120]}}},
    ],
)
def test_a_pattern_matches_when_every_name_has_one_of_its_choices(pattern: Json) -> None:
    assert does_match(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        {"source": ["aws.events"]},
        {"source": ["interlock"], "detail-type": ["JOB_COMPLETED"]},
        {"source": ["inter"]},
        {"absent": ["x"]},
        {"absent": [None]},
        {"source": {"deeper": ["x"]}},
        {"detail": {"flag": [1]}},
        {"detail": {"flag": ["true"]}},
        {"detail": {"nothing": [False]}},
        {"detail": {"detail": {"text": [120]}}},
        {"detail": {"detail": {"text": [{"numeric": ["=", 120]}]}}},
        {"detail": {"flag": [{"numeric": ["=", 1]}]}},
        {"detail-type": [{"prefix": "SLA_"}]},
        {"detail": {"detail": {"delta": [{"prefix": "1"}]}}},
        {"detail-type": [{"anything-but": "JOB_FAILED"}]},
        {"detail-type": [{"anything-but": {"prefix": "JOB_"}}]},
        {"absent": [{"anything-but": "x"}]},
        {"absent": [{"exists": True}]},
        {"detail": {"pipelineId": [{"exists": False}]}},
        {"detail": [{"exists": True}]},
        {"detail": {"detail": [{"exists": True}]}},
        {"detail": {"parts": {"name": ["c"]}}},
        {"detail": {"parts": {"name": ["a"], "rows": [2]}}},
        {"detail": {"parts": {"name": [{"exists": False}]}}},
        {"detail": {"tags": {"name": ["gold"]}}},
        {"detail": {"detail": {"delta": [{"numeric": [">", 100, "<", 120]}]}}},
        {"detail": {"empty": ["x"]}},
    ],
)
def test_a_pattern_does_not_match_otherwise(pattern: Json) -> None:
    assert not does_match(pattern)


BROKEN: list[tuple[Json, str]] = [
    ({}, "at its top"),
    ([], "at its top"),
    ({"source": "interlock"}, "source"),
    ({"source": []}, "source"),
    ({"detail": {}}, "detail"),
    ({"detail": {"pipelineId": "x"}}, "detail.pipelineId"),
    ({"source": [{"suffix": "x"}]}, "source"),
    ({"source": [{"prefix": 1}]}, "source"),
    ({"source": [{"prefix": "a", "exists": True}]}, "source"),
    ({"source": [{"exists": "yes"}]}, "source"),
    ({"source": [{"anything-but": []}]}, "source"),
    ({"source": [{"anything-but": {"suffix": "x"}}]}, "source"),
    ({"source": [{"anything-but": [["x"]]}]}, "source"),
    ({"source": [{"anything-but": True}]}, "source"),
    ({"source": [{"anything-but": None}]}, "source"),
    ({"source": [{"anything-but": ["x", 1]}]}, "source"),
    ({"n": [{"numeric": [">"]}]}, "n"),
    ({"n": [{"numeric": ["<", 1, ">", 0, "=", 5]}]}, "n"),
    ({"n": [{"numeric": ["!=", 1]}]}, "n"),
    ({"n": [{"numeric": ["<", "1"]}]}, "n"),
    ({"n": [["nested"]]}, "n"),
    ({"n": list(range(CHOICES_MAX + 1))}, "n"),
]


@pytest.mark.parametrize(("pattern", "where"), BROKEN)
def test_what_is_no_pattern_is_refused_with_its_place(pattern: Json, where: str) -> None:
    with pytest.raises(BadEventPattern, match=f"event pattern, {where}: "):
        parse_pattern(pattern)


def test_nesting_without_end_is_refused_and_not_followed() -> None:
    pattern: Json = ["x"]
    for _ in range(5_000):
        pattern = {"deeper": pattern}

    with pytest.raises(BadEventPattern, match="nested deeper than"):
        parse_pattern(pattern)


def test_an_event_of_lists_without_end_is_matched_all_the_same() -> None:
    event: dict[str, Json] = {"name": "x"}
    for _ in range(5_000):
        event = {"deeper": [event.get("deeper", event)]}

    assert parse_pattern({"deeper": {"name": ["x"]}}).matches(event)


class CountedText(str):
    """A text of an event that counts what it is compared with."""

    __slots__ = ()
    compared: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        CountedText.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_long_list_is_not_compared_with_each_of_many_values() -> None:
    wanted: list[Json] = [f"table-{number}" for number in range(CHOICES_MAX)]
    pattern = parse_pattern({"tables": wanted})
    CountedText.compared = 0

    assert not pattern.matches({"tables": [CountedText(f"other-{number}") for number in range(1_000)]})
    assert pattern.matches({"tables": [CountedText("table-7")]})
    assert CountedText.compared < 1_000
