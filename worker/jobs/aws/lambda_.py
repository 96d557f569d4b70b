"""Runs jobs as AWS Lambda invocations: synchronous, or asynchronous with a result sensor.

Lambda cannot recognise a repeated invocation. The function gets the token in `interlock.token` of its payload and in
the client context. The function may use it to recognise a repeat; this module does not rely on that.
"""

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from worker.core.errors import Rejected, RetryLater
from worker.core.model.ids import PipelineId
from worker.core.run.state import FailureCategory
from worker.core.time.periods import Period
from worker.core.time.timestamps import parse_rfc3339
from worker.jobs.aws.client import Aws
from worker.jobs.aws.errors import CALL_ERRORS, AwsTrouble, start_answer
from worker.jobs.aws.lambda_payloads import function_failure, payload_of, read_result
from worker.jobs.aws.responses import Answer, part, text
from worker.jobs.messages import tidy
from worker.jobs.outputs import outputs_of
from worker.jobs.runner import (
    CannotStop,
    Config,
    Failed,
    Guarantee,
    Handle,
    JobStatus,
    Refused,
    Running,
    StartAnswer,
    Started,
    StartRequest,
    StopAnswer,
    Stopped,
    Succeeded,
    Traits,
)
from worker.jobs.secrets import Filling, SecretSource
from worker.jobs.spec_fields import UnusableConfig, parse_config
from worker.jobs.specs import LambdaConfig
from worker.runtime.clock import Clock
from worker.store.repos.sensors import Sensors

_EVENT: Final = "Event"
_READ_LIMIT_S: Final = 5.0  # within what the start may take beyond the function's own limit
_SECRETS_LIMIT: Final = timedelta(seconds=10)  # for the payload's secrets, which are read before the function is called


class LambdaRunner:
    """Invokes functions; `sensors` are those by which asynchronous functions report their end."""

    def __init__(self, aws: Aws, clock: Clock, secrets: SecretSource, sensors: Sensors) -> None:
        self._aws, self._clock, self._secrets, self._sensors = aws, clock, secrets, sensors

    def traits(self, config: Config) -> Traits:
        limit = self._limit(_parse(config)) + _SECRETS_LIMIT
        return Traits(guarantee=Guarantee.AT_LEAST_ONCE, can_stop=False, send_timeout=limit)

    async def start(self, request: StartRequest) -> StartAnswer:
        filling = Filling(self._secrets)
        try:
            config = _parse(request.config)
            payload = await payload_of(config, request, filling)
        except Rejected as problem:
            return start_answer(problem)
        except RetryLater as problem:
            # A secret could not be read: the function itself has not been called yet.
            return Refused(FailureCategory.TRANSIENT, tidy(str(problem), filling.secrets))
        try:
            asked = _invocation(config, request.token, payload)
            answer = await self._aws.start("lambda", "Invoke", asked, request.may_send, limit=self._limit(config))
        except AwsTrouble as trouble:
            return start_answer(trouble, filling.secrets)
        if config.invocation_type == _EVENT:
            return Started(_handed_over(answer, request))
        return await self._ended(answer, filling)

    async def status(self, handle: Handle, config: Config) -> JobStatus:
        if ended_at := handle.get("endedAt"):
            return _known_end(handle, parse_rfc3339(str(ended_at)))
        name = _parse(config).result_sensor
        pipeline, period = PipelineId(str(handle["pipeline"])), Period.parse(str(handle["period"]))
        if period is None:
            raise Rejected(f"the invocation is kept under {handle['period']!r}, which is no period; start it again")
        found = (await self._sensors.read(pipeline, [name], period)).get(name)
        if found is None or found.data.get("token") != handle["token"]:
            return Running(f"waiting for the sensor {name} to report the end of {handle['token']}")
        return read_result(found.data)

    async def find(self, _token: str, config: Config) -> Handle | None:
        """Return None: Lambda does not list past invocations."""
        _parse(config)
        return None

    async def stop(self, handle: Handle, config: Config) -> StopAnswer:
        if isinstance(await self.status(handle, config), Running):
            return CannotStop("Lambda cannot stop an invocation; it ends by itself, after 15 minutes at most")
        return Stopped()

    def _limit(self, config: LambdaConfig) -> timedelta:
        is_handed_over = config.invocation_type == _EVENT
        return self._aws.start_limit if is_handed_over else timedelta(seconds=config.timeout)

    async def _ended(self, answer: Answer, filling: Filling) -> Started:
        """Return a handle that records how the invocation ended, and what the function returned."""
        end: dict[str, Any] = {"runId": _request_id(answer), "endedAt": self._clock.now().astimezone(UTC).isoformat()}
        payload = await _payload(answer)
        outputs = outputs_of(payload, filling.secrets)
        if not answer.get("FunctionError"):
            return Started(end, outputs)
        category, message = function_failure(payload)
        return Started({**end, "category": category.value, "message": tidy(message, filling.secrets)}, outputs)


async def _payload(answer: Answer) -> bytes:
    """Return what the function returned; empty if it cannot be read: the invocation has ended anyway."""
    try:
        async with asyncio.timeout(_READ_LIMIT_S):
            return cast("bytes", await answer["Payload"].read())
    except CALL_ERRORS:
        return b""


def _parse(config: Config) -> LambdaConfig:
    """Parse the configuration. Raises `UnusableConfig` if the end of the job could never be seen."""
    parsed = parse_config(LambdaConfig, config)
    if parsed.invocation_type == _EVENT and not parsed.result_sensor:
        raise UnusableConfig("an Event invocation needs resultSensor, by which the function reports its end")
    return parsed


def _invocation(config: LambdaConfig, token: str, payload: bytes) -> dict[str, object]:
    asked: dict[str, object] = {
        "FunctionName": config.function_name,
        "InvocationType": config.invocation_type,
        "Payload": payload,
    }
    if config.qualifier:
        asked["Qualifier"] = config.qualifier
    if config.invocation_type != _EVENT:  # Lambda passes the client context only to synchronous invocations
        context = json.dumps({"custom": {"interlock_token": token}})
        asked["ClientContext"] = base64.b64encode(context.encode()).decode()
    return asked


def _request_id(answer: Answer) -> str:
    """Return the id that identifies the invocation in the function's own log."""
    return text(part(answer, "ResponseMetadata"), "RequestId")


def _handed_over(answer: Answer, request: StartRequest) -> Handle:
    context = request.context
    return {
        "runId": _request_id(answer),
        "token": request.token,
        "pipeline": context.pipeline,
        "period": str(context.period),
    }


def _known_end(handle: Handle, ended_at: datetime | None) -> JobStatus:
    if "category" not in handle:
        return Succeeded(ended_at)
    return Failed(FailureCategory(cast("str", handle["category"])), str(handle["message"]), ended_at)
