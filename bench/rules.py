"""How fast a group of rules is judged, beside two peers that do the same checks in the same run.

`if chain` is the limit of plain Python: the eight checks written out by hand, with everything prepared, and only a
boolean to show for it. `dict interpreter` is what one writes first: rules as dicts, one lambda for each operator, no
exact numbers, no reasons. Run it with `python -m bench.rules`.

Then the costliest evaluations that are accepted: how long each takes altogether, and for how long at most everything
else on the loop waits, which must stay below 50 ms.
"""

import operator
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter, thread_time
from typing import Any

from worker.core.model.patterns import TEXT_CHARS_MAX, compile_pattern
from worker.core.model.rules import Group, Operator, Rule, evaluate, evaluate_in_turns

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROUNDS = 15
EVALUATIONS_PER_ROUND = 1000
COSTLY_ROUNDS = 3

RULES: list[dict[str, Any]] = [
    {"key": "orders", "check": "exists"},
    {"key": "orders", "check": "equals", "field": "status", "value": "COMPLETE"},
    {"key": "orders", "check": "gte", "field": "count", "value": 1000},
    {"key": "orders", "check": "matches", "field": "file", "value": r"part-\d{5}\.(csv|parquet)"},
    {"key": "quality", "check": "between", "field": "score", "value": [0.95, 1]},
    {"key": "quality", "check": "in", "field": "grade", "value": ["A", "B"]},
    {"key": "quality", "check": "equals", "field": "complete", "value": True},
    {"key": "freshness", "check": "age_lt", "field": "updatedAt", "value": "2h"},
]
SENSORS: dict[str, dict[str, Any]] = {
    "orders": {"status": "COMPLETE", "count": 1200, "file": "part-00042.parquet"},
    "quality": {"score": 0.99, "grade": "B", "complete": True},
    "freshness": {"updatedAt": "2026-03-01T11:30:00Z"},
}
GROUP = Group(
    members=tuple(
        Rule(key=rule["key"], check=Operator(rule["check"]), field=rule.get("field"), value=rule.get("value"))
        for rule in RULES
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender. `ratio` is its time over that of the `if chain`: 1 is the limit."""

    name: str
    evaluations_per_second: float
    microseconds_per_rule: float
    ratio: float


def judge_here() -> bool:
    return evaluate(GROUP, SENSORS, NOW).passed


def judge_and_explain_here() -> bool:
    result = evaluate(GROUP, SENSORS, NOW)
    return result.passed and all(member.reason for member in result.members)


_FILE = re.compile(RULES[3]["value"])
_TWO_HOURS = timedelta(hours=2)


def judge_by_if_chain() -> bool:
    orders, quality, freshness = SENSORS.get("orders"), SENSORS.get("quality"), SENSORS.get("freshness")
    if orders is None or quality is None or freshness is None:
        return False
    if orders.get("status") != "COMPLETE" or float(orders.get("count", "nan")) < 1000:
        return False
    if not _FILE.fullmatch(orders.get("file", "")):
        return False
    if not 0.95 <= float(quality.get("score", "nan")) <= 1 or quality.get("grade") not in ("A", "B"):
        return False
    if quality.get("complete") is not True:
        return False
    return NOW - datetime.fromisoformat(freshness.get("updatedAt", "")) < _TWO_HOURS


_UNITS = {"s": 1, "m": 60, "h": 3600}
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "equals": operator.eq,
    "gte": lambda seen, wanted: float(seen) >= float(wanted),
    "between": lambda seen, wanted: float(wanted[0]) <= float(seen) <= float(wanted[1]),
    "in": lambda seen, wanted: seen in wanted,
    "matches": lambda seen, wanted: re.fullmatch(wanted, seen) is not None,
    "age_lt": lambda seen, wanted: (
        NOW - datetime.fromisoformat(seen) < timedelta(seconds=int(wanted[:-1]) * _UNITS[wanted[-1]])
    ),
}


def judge_by_dict_interpreter() -> bool:
    results: list[bool] = []
    for rule in RULES:
        data = SENSORS.get(rule["key"])
        if rule["check"] == "exists":
            results.append(data is not None)
        else:
            results.append(data is not None and _OPERATORS[rule["check"]](data.get(rule["field"]), rule["value"]))
    return all(results)


CONTENDERS: Mapping[str, Callable[[], bool]] = {
    "if chain": judge_by_if_chain,
    "dict interpreter": judge_by_dict_interpreter,
    "interlock": judge_here,
    "interlock, every reason read": judge_and_explain_here,
}


def run() -> list[Row]:
    """Time every contender in turn, round by round, so that a busy machine slows all of them alike; keep the best."""
    disagreeing = [name for name, judge in CONTENDERS.items() if not judge()]
    if disagreeing:
        raise AssertionError(f"the group holds, but these say it does not: {disagreeing}")
    best = dict.fromkeys(CONTENDERS, float("inf"))
    for _ in range(ROUNDS):
        for name, judge in CONTENDERS.items():
            best[name] = min(best[name], _seconds_per_call(judge))
    return [
        Row(
            name=name,
            evaluations_per_second=1 / seconds,
            microseconds_per_rule=seconds * 1e6 / len(RULES),
            ratio=seconds / best["if chain"],
        )
        for name, seconds in best.items()
    ]


def _seconds_per_call(judge: Callable[[], bool]) -> float:
    start = perf_counter()
    for _ in range(EVALUATIONS_PER_ROUND):
        judge()
    return (perf_counter() - start) / EVALUATIONS_PER_ROUND


# By name: a pattern for each number, so that none is compiled before, and how many rules there are.
COSTLIEST: Mapping[str, tuple[Callable[[int], str], int]] = {
    "many states": (lambda number: f".*a.{{1000}}.{{{900 - number}}}", 200),
    "many branches": (lambda number: f".*a.{{900}}(b?.){{46}}.{{{300 - number}}}", 30),
    "many parts": (lambda number: f".*a(ab){{{130 - number % 30}}}[^{chr(0x100 + number)}]", 200),
}


def longest_wait(pattern: Callable[[int], str], count: int) -> tuple[float, float]:
    """The longest wait of the rest of the loop, and the whole evaluation, in seconds of CPU."""
    text = "".join(random.Random(1).choice("ab") for _ in range(TEXT_CHARS_MAX))
    rules = [Rule(key="orders", check=Operator.MATCHES, field="it", value=pattern(number)) for number in range(count)]
    compile_pattern.cache_clear()
    waits, began = list[float](), thread_time()
    turns = evaluate_in_turns(Group(members=tuple(rules)), {"orders": {"it": text}}, NOW)
    while True:
        start = thread_time()
        is_over = next(turns, turns) is turns
        waits.append(thread_time() - start)
        if is_over:
            return max(waits), thread_time() - began


def main() -> None:
    print(f"a group of {len(RULES)} rules, best of {ROUNDS} rounds of {EVALUATIONS_PER_ROUND}")
    for row in run():
        print(
            f"{row.name:<30} {row.evaluations_per_second:>10,.0f} groups/s {row.microseconds_per_rule:>8.2f} µs/rule "
            f"{row.ratio:>6.2f} x the if chain"
        )
    print(f"the costliest patterns that are accepted, on texts of {TEXT_CHARS_MAX} characters, best of {COSTLY_ROUNDS}")
    for name, (pattern, count) in COSTLIEST.items():
        rounds = [longest_wait(pattern, count) for _ in range(COSTLY_ROUNDS)]
        wait, whole = (min(seconds) * 1000 for seconds in zip(*rounds, strict=True))
        print(f"{name:<30} {count:>10} rules {whole:>12.0f} ms {wait:>14.1f} ms at most until others get a turn")


if __name__ == "__main__":
    main()
