"""Sends one probe within the limits of its target, and makes its result."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import Final

from worker.core.errors import Rejected, RetryLater
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.model.probes import Probe, ProbeType
from worker.core.probes.trait import ProbeAnswer, ProbeUnknown
from worker.core.time.durations import format_duration
from worker.core.time.periods import Period
from worker.jobs.messages import tidy
from worker.jobs.runner import RunContext, TargetDown
from worker.jobs.templates import fill, template_values
from worker.probes.results import result_of
from worker.probes.runner import ProbeRequest, ProbeRunner
from worker.targets.calls import Targets
from worker.targets.circuit_breaker import Breaker, TargetClosed
from worker.targets.priority_gate import Urgency

REASON_CHARS_MAX: Final = 300  # on one line, because rows, alerts and `explain` show it
AT_ONCE_MAX: Final = 64  # probes of this worker; the rest of the calls is for jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeCall:
    """ProbeCall: one probe of a pipeline, for a period."""

    pipeline: PipelineId
    schedule: ScheduleId
    period: Period
    probe: Probe


class Prober:
    """Sends probes. No response is an exception: it is a result, or unknown with its reason."""

    def __init__(self, runners: Mapping[ProbeType, ProbeRunner], targets: Targets) -> None:
        self._runners, self._targets = runners, targets
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)

    async def send(self, call: ProbeCall, urgency: Urgency = Urgency.POLL) -> ProbeAnswer:
        """Send one probe, when its target and this worker have a slot for it."""
        answer = await self._send(call, urgency)
        if isinstance(answer, ProbeUnknown):
            return replace(answer, reason=shorten(answer.reason, REASON_CHARS_MAX, placeholder=" …"))
        return answer

    async def _send(self, call: ProbeCall, urgency: Urgency) -> ProbeAnswer:
        runner = self._runners.get(call.probe.type)
        if runner is None:
            reason = f"this worker cannot send {call.probe.type} probes"
            return ProbeUnknown(kind="unsupported", reason=reason)
        request = _request(call)
        try:
            async with self._targets.turn(runner.target(request.config), urgency) as breaker, self._slots:
                return await self._ask(call.probe, runner, request, breaker)
        except TargetClosed as problem:
            return ProbeUnknown(kind="target-closed", reason=tidy(str(problem)), is_down=True)
        except Rejected as problem:
            return ProbeUnknown(kind="rejected", reason=tidy(str(problem)))
        except RetryLater as problem:
            return ProbeUnknown(kind="no-answer", reason=tidy(str(problem)), is_down=isinstance(problem, TargetDown))

    async def _ask(self, probe: Probe, runner: ProbeRunner, request: ProbeRequest, breaker: Breaker) -> ProbeAnswer:
        try:
            async with asyncio.timeout(request.timeout.total_seconds()):
                response = await runner.ask(request)
        except TimeoutError:
            reason = f"no response within {format_duration(request.timeout)}"
            breaker.failed(reason)
            return ProbeUnknown(kind="timeout", reason=reason, is_down=True)
        except TargetDown as problem:
            breaker.failed(str(problem))
            raise
        if isinstance(response, ProbeUnknown):
            if response.is_down:
                breaker.failed(response.reason)
            else:
                breaker.answered()
            return response
        breaker.answered()
        return result_of(probe, response)


def _request(call: ProbeCall) -> ProbeRequest:
    context = RunContext(pipeline=call.pipeline, schedule=call.schedule, period=call.period, run_id="", attempt=0)
    return ProbeRequest(
        pipeline=call.pipeline,
        schedule=call.schedule,
        period=call.period,
        config=fill(call.probe.config, template_values(context)),
        timeout=call.probe.timeout,
    )
