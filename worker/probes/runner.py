"""Defines the port to what probes ask: one request, one response, nothing stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from worker.core.model.values import Json
from worker.core.probes.trait import ProbeUnknown
from worker.core.time.periods import Period


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """Asks once. In `config` template variables are filled in, secrets are not.

    The caller enforces `timeout`; an adapter uses it to stop what it began.
    """

    pipeline: str
    schedule: str
    period: Period
    config: Mapping[str, Json]
    timeout: timedelta

    def body(self, parameters: Mapping[str, Json]) -> dict[str, Json]:
        """Return what an evaluator gets: the contract of the first generation's evaluators."""
        return {
            "pipeline": self.pipeline,
            "schedule": self.schedule,
            "period": str(self.period),
            "config": dict(parameters),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RawResponse:
    """Holds a response before it is selected from, bounded and freed of `secrets`.

    `also` holds fields that the adapter adds to the result.
    """

    value: Json
    also: Mapping[str, Json] = field(default_factory=dict[str, Json])
    secrets: frozenset[str] = frozenset()


class ProbeRunner(Protocol):
    def target(self, config: Mapping[str, Json], /) -> str:
        """Return the name of what is asked; probes and jobs with the same name share its limits."""
        ...

    async def ask(self, request: ProbeRequest, /) -> RawResponse | ProbeUnknown:
        """Send one request.

        Raises `Rejected` if it can never be sent as it is, and `RetryLater` if the target could not be asked.
        """
        ...
