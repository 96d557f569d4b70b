"""Interprets the answer to a probe as a permission."""

from collections.abc import Mapping
from typing import Any, Protocol

from worker.core.errors import WorkerError
from worker.operations.doctor.aws_calls import AwsRefusal, AwsReply
from worker.operations.doctor.checks import PermissionProbe
from worker.operations.doctor.report import Diagnosis, fine, wrong

AREA = "permissions"


class IamCalls(Protocol):
    async def call(self, service: str, operation: str, parameters: Mapping[str, Any]) -> AwsReply:
        """Send one request. Raises `AwsRefusal`, `RetryLater` without an answer, and `Unauthenticated`."""
        ...


async def ask(calls: IamCalls, probe: PermissionProbe) -> Diagnosis:
    """Send the call of a probe and return the diagnosis of its answer."""
    try:
        await calls.call(probe.service, probe.operation, probe.parameters)
    except AwsRefusal as refusal:
        return _judged(probe, refusal)
    except WorkerError as trouble:
        return unanswered(probe.action, trouble)
    return granted(probe.action, probe.resource, probe.proof)


def granted(action: str, resource: str, proof: str) -> Diagnosis:
    return fine(AREA, action, f"allowed on {resource}", proven_by=proof)


def denied(action: str, resource: str, refusal: object, proof: str) -> Diagnosis:
    remedy = f"allow {action} on {resource}, or use the role of the worker"
    return wrong(AREA, action, f"refused on {resource}: {refusal}", remedy, proven_by=proof)


def unanswered(action: str, trouble: WorkerError) -> Diagnosis:
    return wrong(AREA, action, f"no answer: {trouble}", "see the network, the region and the endpoint")


def _judged(probe: PermissionProbe, refusal: AwsRefusal) -> Diagnosis:
    if refusal.code in probe.refusals:
        return granted(probe.action, probe.resource, probe.proof)
    if refusal.is_for_lack_of_rights:
        return denied(probe.action, probe.resource, refusal, probe.proof)
    finding = f"{probe.resource} answered {refusal}"
    return wrong(
        AREA, probe.action, finding, "check that it exists and is configured as required", proven_by=probe.proof
    )
