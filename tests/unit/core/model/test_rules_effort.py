"""What patterns may cost in one evaluation: others get their turn, and there is an end, with a reason."""

import asyncio
import random

import pytest

from tests.support.builders.values import NOON
from worker.config.load import load_text
from worker.config.rules import RULES_MAX
from worker.core.model.checks import pattern_steps
from worker.core.model.patterns import TEXT_CHARS_MAX
from worker.core.model.rules import (
    STEPS_MAX,
    STEPS_PER_TURN,
    Group,
    Mode,
    Operator,
    Rule,
    evaluate,
    evaluate_in_turns,
    leaves,
)
from worker.runtime.turns import in_turns

HOSTILE = ".*a.{1000}.{900}"  # thirty of these on long texts took half a minute
COSTLY = ".*a(b?.){40}.{900}"  # about as much as any accepted pattern
TEXT = "".join(random.Random(1).choice("ab") for _ in range(TEXT_CHARS_MAX))


def matching(pattern: str, count: int) -> tuple[Rule, ...]:
    return tuple(Rule(key="orders", check=Operator.MATCHES, field="it", value=pattern) for _ in range(count))


def steps_of(pattern: str) -> int:
    return pattern_steps(TEXT, pattern)[0]


@pytest.mark.parametrize(
    "group",
    [
        Group(members=matching(HOSTILE, 30)),
        Group(members=matching(COSTLY, 10)),
        Group(mode=Mode.ANY, members=(Group(members=matching(COSTLY, 5)), Group(members=matching(HOSTILE, 30)))),
    ],
)
def test_others_get_a_turn_before_many_steps_were_taken(group: Group) -> None:
    turns = evaluate_in_turns(group, {"orders": {"it": TEXT}}, NOON)

    pauses = sum(1 for _ in turns)

    steps = [steps_of(str(rule.value)) for rule in leaves(group)]
    # Between two pauses there is what one turn allows, and the rule that goes beyond.
    assert pauses >= sum(steps) // (STEPS_PER_TURN + max(steps)) >= 4


async def test_everything_else_on_the_loop_goes_on_meanwhile() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    group = Group(members=matching(COSTLY, 10))
    result = await in_turns(evaluate_in_turns(group, {"orders": {"it": TEXT}}, NOON))
    ticking.cancel()

    assert ticks >= 9
    assert result == evaluate(group, {"orders": {"it": TEXT}}, NOON)


def test_short_texts_need_few_turns() -> None:
    turns = evaluate_in_turns(
        Group(members=matching(r"part-\d{5}\.csv", 100)), {"orders": {"it": "part-00042.csv"}}, NOON
    )

    assert len(list(turns)) <= 2


def test_a_rule_that_goes_beyond_the_budget_does_not_hold_and_says_why() -> None:
    fitting = STEPS_MAX // steps_of(COSTLY)
    result = evaluate(
        Group(members=(*matching(COSTLY, fitting + 2), *matching("a.*|b.*", 1))), {"orders": {"it": TEXT}}, NOON
    )

    compared, left_out = result.members[:fitting], result.members[fitting:-1]
    assert all("full match" in member.reason for member in compared)
    assert [member.passed for member in left_out] == [False, False]
    for member in left_out:
        assert (
            "orders.it was not compared: the patterns of these rules would take more than 4,000,000 steps"
            in member.reason
        )
    # There is still room for a cheap one.
    assert result.members[-1].passed


def test_as_many_rules_as_a_file_may_have_fit_the_budget_on_the_longest_texts() -> None:
    result = evaluate(Group(members=matching("[ab]*", RULES_MAX)), {"orders": {"it": TEXT}}, NOON)

    assert result.passed


PIPELINE = """\
pipeline: {{id: p}}
schedule: {{cron: "0 6 * * *"}}
validation:
  rules:
    - {{key: orders, check: matches, field: it, value: "{pattern}"}}
    - {{key: orders, check: exists}}
job: {{type: command, config: {{command: x}}}}
"""


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(a?b){60}", "it branches at more than 48 places"),
        ("(.{90}){30}", "it needs more than 2000 states"),
        ("(ab){400}", "it has more than 500 parts"),
        ("(a", "this group is never closed"),
    ],
)
def test_a_pattern_that_cannot_be_bounded_is_an_error_with_its_place_and_leniently_a_rule_that_says_why(
    pattern: str, problem: str
) -> None:
    text = PIPELINE.format(pattern=pattern)
    strict, lenient = load_text(text, file="p.yaml"), load_text(text, file="p.yaml", lenient=True)

    [error] = strict.errors
    assert str(error).startswith("p.yaml:5:")
    assert problem in str(error)
    assert strict.pipeline is None
    assert lenient.pipeline is not None
    first, second = evaluate(lenient.pipeline.rules, {"orders": {"it": "ab" * 60}}, NOON).members
    assert not first.passed
    assert problem in first.reason
    assert second.passed
