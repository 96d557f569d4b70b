"""The doctor sends probes: what each answer means, and how many it sends at most."""

from dataclasses import replace
from datetime import UTC, datetime

from tests.support.builders.values import a_pipeline
from worker.core.model.pipeline import PipelineId
from worker.core.model.probes import Probe, ProbeType
from worker.core.probes.trait import ProbeAnswer, ProbeResult, ProbeUnknown
from worker.operations.doctor.probes import PROBES_MAX, look_at_probes, not_sent, probe_calls
from worker.operations.doctor.report import Health
from worker.probes.prober import ProbeCall

NOW = datetime(2026, 3, 3, 12, tzinfo=UTC)
ANSWERS: dict[str, ProbeAnswer] = {
    "found": ProbeResult({"status": "PASS"}),
    "down": ProbeUnknown(kind="http-503", reason="the response was 503", is_down=True),
    "refused": ProbeUnknown(kind="http-401", reason="the response was 401"),
}


def calls(*keys: str) -> list[ProbeCall]:
    probes = tuple(Probe(key=key, type=ProbeType.HTTP, config={}) for key in keys)
    return probe_calls([replace(a_pipeline(), id=PipelineId("fx"), probes=probes)], NOW)


async def test_what_may_pass_is_a_warning_and_what_cannot_is_a_failure() -> None:
    async def send(call: ProbeCall) -> ProbeAnswer:
        return ANSWERS[call.probe.key]

    found = [each async for each in look_at_probes(send, calls(*ANSWERS))]

    assert [each.health for each in found] == [Health.OK, Health.WARN, Health.FAIL]
    assert all(bool(each.remedy) == (each.health is not Health.OK) for each in found)
    assert found[2].subject == "fx refused (http)"


async def test_no_more_are_sent_than_a_limit_and_the_rest_is_counted() -> None:
    sent: list[ProbeCall] = []

    async def send(call: ProbeCall) -> ProbeAnswer:
        sent.append(call)
        return ANSWERS["found"]

    found = [each async for each in look_at_probes(send, calls(*map(str, range(PROBES_MAX + 5))))]

    assert len(sent) == PROBES_MAX
    assert found[-1].finding == "5 more probes were not sent"


def test_one_probe_is_counted_as_one() -> None:
    assert not_sent(calls("a")).finding == "1 probe is defined by 1 pipeline; --probes sends each once"
