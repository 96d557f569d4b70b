"""Sends the probes of pipelines once, as a worker would, and stores nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from worker.core.model.pipeline import Pipeline
from worker.core.probes.expected_periods import current_period
from worker.core.probes.trait import ProbeAnswer, ProbeResult
from worker.operations.doctor.report import Diagnosis, doubtful, fine, wrong
from worker.probes.prober import ProbeCall
from worker.runtime.concurrency import AT_ONCE, gather_bounded

AREA: Final = "probes"
PROBES_MAX: Final = 200  # each probe costs a request to somebody else

SendProbe = Callable[[ProbeCall], Awaitable[ProbeAnswer]]


def probe_calls(pipelines: Sequence[Pipeline], now: datetime) -> list[ProbeCall]:
    """Return the probes of pipelines, each for the current period of the first schedule."""
    return [
        ProbeCall(pipeline=pipeline.id, schedule=schedule.id, period=current_period(schedule, now), probe=probe)
        for pipeline in pipelines
        for schedule in pipeline.schedules[:1]
        for probe in pipeline.probes
    ]


def not_sent(calls: Sequence[ProbeCall]) -> Diagnosis:
    """Say why no probe was sent: each is a request to somebody else, or a program."""
    count, pipelines = len(calls), len({call.pipeline for call in calls})
    probes = "1 probe is" if count == 1 else f"{count} probes are"
    owners = "1 pipeline" if pipelines == 1 else f"{pipelines} pipelines"
    return fine(AREA, "requests", f"{probes} defined by {owners}; --probes sends each once")


async def look_at_probes(send: SendProbe, calls: Sequence[ProbeCall]) -> AsyncIterator[Diagnosis]:
    sent = calls[:PROBES_MAX]
    for begin in range(0, len(sent), AT_ONCE):  # in batches, so that people see results as they arrive
        for found in await gather_bounded([partial(_look_at, send, call) for call in sent[begin : begin + AT_ONCE]]):
            yield found
    if len(calls) > PROBES_MAX:
        finding = f"{len(calls) - PROBES_MAX} more probes were not sent"
        yield doubtful(AREA, "requests", finding, "send them one by one: `interlock probe test PIPELINE KEY`")


async def _look_at(send: SendProbe, call: ProbeCall) -> Diagnosis:
    subject = f"{call.pipeline} {call.probe.key} ({call.probe.type})"
    answer = await send(call)
    proof = f"sends the probe for {call.period}, and stores nothing"
    if isinstance(answer, ProbeResult):
        return fine(AREA, subject, f"it returns {', '.join(answer.data) or 'no fields'}", proven_by=proof)
    test = f"`interlock probe test {call.pipeline} {call.probe.key}` sends it again"
    if answer.is_down:  # this may be over in a minute, and workers keep asking
        return doubtful(AREA, subject, answer.reason, f"see that what it asks is running; {test}", proven_by=proof)
    return wrong(AREA, subject, answer.reason, f"correct the probe, its secrets or its rights; {test}", proven_by=proof)
