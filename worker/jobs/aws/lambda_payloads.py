"""Builds the payload of a Lambda function and interprets its result."""

import json
from collections.abc import Mapping
from typing import Final, cast

from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.jobs.http.responses import FAILED, SUCCEEDED, TIMED_OUT
from worker.jobs.messages import tidy
from worker.jobs.outputs import outputs_of
from worker.jobs.runner import Failed, JobStatus, RunContext, Running, StartRequest, Succeeded
from worker.jobs.secrets import Filling
from worker.jobs.spec_fields import UnusableConfig
from worker.jobs.specs import LambdaConfig
from worker.runtime.json_bytes import to_json

PAYLOAD_BYTES_MAX: Final = {"RequestResponse": 6 * 1024 * 1024, "Event": 1024 * 1024}
# The code never ran, and a retry would fail in the same way.
PERMANENT: Final = frozenset(
    {
        "Runtime.ImportModuleError",
        "Runtime.HandlerNotFound",
        "Runtime.MalformedHandlerName",
        "Runtime.UserCodeSyntaxError",
        "Runtime.InvalidEntrypoint",
    }
)
_TIMED_OUT: Final = ("Task timed out", "Sandbox.Timedout")
_SHOWN_CHARS: Final = 200


async def payload_of(config: LambdaConfig, request: StartRequest, filling: Filling) -> bytes:
    """Build the payload: what the pipeline defines, plus `interlock`, which identifies the run.

    Raises `Rejected` if the payload is not JSON or too large, or names a secret that does not exist.
    """
    given = await _given(config, filling)
    members = await filling.texts(config.arguments)
    if isinstance(given, Mapping):
        given = {**given, **members, "interlock": _about(request.token, request.context)}
    elif members:
        raise UnusableConfig("arguments need a payload that is a mapping")
    payload = json.dumps(given).encode()
    limit = PAYLOAD_BYTES_MAX[config.invocation_type]
    if len(payload) > limit:
        raise UnusableConfig(f"the payload is longer than {limit} bytes; put it into S3 and pass its address")
    return payload


async def _given(config: LambdaConfig, filling: Filling) -> Json:
    payload = config.payload
    if not isinstance(payload, str):
        return await filling.values(cast("Json", payload))
    if not payload:
        return {}
    try:
        # Parse before filling in secrets: a secret may contain quotes.
        return await filling.values(_json(payload))
    except ValueError:
        pass
    try:
        return _json(await filling.text(payload))
    except ValueError as error:
        raise UnusableConfig("payload is neither a mapping nor JSON") from error


def _json(text: str) -> Json:
    try:
        return cast("Json", json.loads(text))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _about(token: str, context: RunContext) -> dict[str, Json]:
    return {
        "token": token,
        "pipeline": context.pipeline,
        "schedule": context.schedule,
        "period": str(context.period),
        "runId": context.run_id,
        "attempt": context.attempt,
        "par_day": context.par_day,
        "par_hour": context.par_hour,
    }


def function_failure(payload: bytes) -> tuple[FailureCategory, str]:
    """Return the category and a short message for Lambda's report of a failed function."""
    text = payload.decode(errors="replace")
    try:
        told = _json(text)
    except ValueError:
        told = None
    if not isinstance(told, Mapping):
        return FailureCategory.TRANSIENT, f"the function failed: {text[:_SHOWN_CHARS]}"
    kind, said = str(told.get("errorType") or ""), str(told.get("errorMessage") or "")
    message = f"the function failed: {': '.join(part for part in (kind, said) if part) or 'no message'}"
    if any(mark in message for mark in _TIMED_OUT):
        return FailureCategory.TIMEOUT, message
    return FailureCategory.PERMANENT if kind in PERMANENT else FailureCategory.TRANSIENT, message


def read_result(data: Mapping[str, Json]) -> JobStatus:
    """Interpret a result sensor: its `status`, and its `message` if the function failed."""
    state = str(data.get("status") or "").lower()
    message = tidy(f"the function reports {state}: {data.get('message') or 'no message'}")
    outputs = outputs_of(to_json({name: value for name, value in data.items() if name != "token"}))
    if state in SUCCEEDED:
        return Succeeded(outputs=outputs)
    if state in TIMED_OUT:
        return Failed(FailureCategory.TIMEOUT, message, outputs=outputs)
    if state in FAILED:
        return Failed(FailureCategory.TRANSIENT, message, outputs=outputs)
    return Running(tidy(f"the function reports {state or 'no status'}"))
