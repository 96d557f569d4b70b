"""The rules of a bus: all of them are looked at, or it is told that some were not."""

from collections.abc import Mapping
from typing import Any

import pytest

from worker.operations.doctor.aws_calls import AwsReply
from worker.operations.doctor.aws_resources import PAGE, PAGES_MAX, BusLook
from worker.operations.doctor.report import Diagnosis


class Bus:
    """A bus with any number of rules, listed page by page as EventBridge does."""

    def __init__(self, rules: int) -> None:
        self._rules = [{"Name": f"rule-{number}", "State": "ENABLED"} for number in range(rules)]

    async def call(self, service: str, operation: str, parameters: Mapping[str, Any]) -> AwsReply:
        assert service == "events"
        match operation:
            case "ListRules":
                begin, limit = int(parameters.get("NextToken", "0")), int(parameters["Limit"])
                rules, end = self._rules[begin : begin + limit], begin + limit
                more = {"NextToken": str(end)} if end < len(self._rules) else {}
                return AwsReply({"Rules": rules, **more}, None)
            case "ListTargetsByRule":
                return AwsReply({"Targets": [{"Id": "t", "DeadLetterConfig": {"Arn": "a"}}]}, None)
            case "PutEvents":
                return AwsReply({"Entries": [{"ErrorCode": "MalformedDetail"}]}, None)
            case _:
                return AwsReply({}, None)


async def looked_at(rules: int) -> list[Diagnosis]:
    look = BusLook(calls=Bus(rules), bus="events", told={"source": ["interlock"]})
    return [found async for found in look.diagnose() if found.area == "rules"]


@pytest.mark.parametrize("rules", [0, 1, PAGE, PAGE + 1, 3 * PAGE])
async def test_every_rule_is_looked_at_however_many_pages_they_fill(rules: int) -> None:
    found = await looked_at(rules)

    assert len([each for each in found if each.subject.startswith("rule-")]) == rules


async def test_rules_that_were_not_looked_at_are_told() -> None:
    found = await looked_at(PAGE * PAGES_MAX + 1)

    assert "it has more than 2,000 rules, and the others were not checked" in {each.finding for each in found}
