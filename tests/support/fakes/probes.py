"""What probes ask, in the test: a response for each name, which the test sets, and everything that was asked."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from worker.core.model.values import Json
from worker.core.probes.trait import ProbeUnknown
from worker.probes.runner import ProbeRequest, RawResponse

Answer: TypeAlias = "Json | ProbeUnknown"


@dataclass
class FakeProbes:
    """Answers every type of probe by the value of its `url`, `command`, `bucket`, `table` or `path`."""

    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[ProbeRequest] = field(default_factory=list[ProbeRequest])
    takes_s: float = 0.0
    under_way: int = 0
    most_under_way: int = 0
    before_answer: Callable[[str], None] = lambda _: None

    def target(self, config: Mapping[str, Json]) -> str:
        return "sql"

    async def ask(self, request: ProbeRequest) -> RawResponse | ProbeUnknown:
        self.asked.append(request)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if self.takes_s:
                await asyncio.sleep(self.takes_s)
            name = _name(request.config)
            self.before_answer(name)
            answer = self.answers.get(name, ProbeUnknown(kind="http-503", reason="the response was 503"))
        finally:
            self.under_way -= 1
        return answer if isinstance(answer, ProbeUnknown) else RawResponse(value=answer)

    def count(self, name: str) -> int:
        return sum(_name(request.config) == name for request in self.asked)


def _name(config: Mapping[str, Json]) -> str:
    return str(next(config[key] for key in ("url", "command", "bucket", "table", "path") if key in config))
