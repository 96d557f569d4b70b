"""A queue that messages are taken from: whether it is there, and what becomes of what nobody settles."""

import json
from collections.abc import AsyncIterator, Mapping

from worker.core.errors import WorkerError
from worker.operations.doctor.aws_calls import Refused
from worker.operations.doctor.checks import queue_probes
from worker.operations.doctor.iam import Calls, ask, unanswered
from worker.operations.doctor.report import Diagnosis, doubtful, fine, wrong


async def look_at_queue(calls: Calls, name: str, address: str) -> AsyncIterator[Diagnosis]:
    if not address:
        finding = f"INTERLOCK_{name.upper()}_QUEUE is not set, so this duty does nothing"
        yield doubtful("queues", name, finding, "set it, or drop the duty")
        return
    try:
        answer = await calls.call("sqs", "GetQueueAttributes", {"QueueUrl": address, "AttributeNames": ["All"]})
    except Refused as refusal:
        yield wrong("queues", name, str(refusal), "correct its address, or allow sqs:GetQueueAttributes")
        return
    except WorkerError as trouble:
        yield unanswered("sqs:GetQueueAttributes", trouble)
        return
    yield _judged(name, answer.body.get("Attributes", {}))
    for probe in queue_probes(name, address):
        yield await ask(calls, probe)


def _judged(name: str, attributes: Mapping[str, str]) -> Diagnosis:
    waiting = f"{attributes.get('ApproximateNumberOfMessages', '?')} messages wait"
    if "RedrivePolicy" not in attributes:
        remedy = "give it one: a message nobody settles is lost after its retention"
        return doubtful("queues", name, f"it has no dead-letter queue; {waiting}", remedy)
    receives = json.loads(attributes["RedrivePolicy"]).get("maxReceiveCount")
    return fine("queues", name, f"given up after {receives} receives; {waiting}")
