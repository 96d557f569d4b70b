"""Sensors, for producers that write them over HTTP."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from worker.core.errors import ConfigError
from worker.core.model.exact_json import read_json
from worker.core.model.values import Json
from worker.operations.sensors.names import SensorName, sensor_name
from worker.operations.sensors.writes import SensorWrite, WrittenSensor
from worker.runtime.json_bytes import to_json
from worker.store.repos.delivery.idempotency import AnsweredRequest, AnsweredRequests
from worker.store.table import TooLarge
from worker.web.api.context import ApiContext, Context
from worker.web.api.parameters import PipelineName
from worker.web.api.responses import JSON
from worker.web.api.schemas import SensorAccepted, SensorsAccepted
from worker.web.problems import FieldError, ProblemType, WebProblem

BATCH_MAX: Final = 500
KEY_MAX: Final = 512
ERRORS_MAX: Final = 100
REPLAYED: Final = "Idempotency-Replayed"

sensors_router = APIRouter(tags=["sensors"])

_OBJECT: Final[dict[str, Any]] = {"type": "object", "description": "The sensor's fields.", "additionalProperties": True}
_BATCH: Final[dict[str, Any]] = {
    "type": "array",
    "minItems": 1,
    "maxItems": BATCH_MAX,
    "items": {
        "type": "object",
        "required": ["pipeline", "key", "data"],
        "additionalProperties": False,
        "properties": {
            "pipeline": {"type": "string"},
            "key": {"type": "string"},
            "period": {"type": "string"},
            "data": _OBJECT,
        },
    },
}


def _body(schema: dict[str, Any], example: object) -> dict[str, Any]:
    """Return how a body is documented that is read here, because numbers must stay exact."""
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema, "example": example}}}}


IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=256, description="Repeating a request with its key writes nothing again."),
]


async def _sensor_path(
    pipeline: PipelineName,
    key: Annotated[str, Path(max_length=KEY_MAX, examples=["orders-export"])],
    period: Annotated[str | None, Query(max_length=32, examples=["2027-03-22"])] = None,
) -> dict[str, str | None]:
    return {"pipeline": pipeline, "key": key, "period": period}


SensorPath = Annotated[dict[str, str | None], Depends(_sensor_path)]


@sensors_router.post(
    "/sensors/{pipeline}/{key:path}",
    summary="Write a sensor",
    status_code=202,
    response_model=SensorAccepted,
    openapi_extra=_body(_OBJECT, {"status": "complete", "rows": 1200}),
)
async def write_sensor(
    request: Request,
    context: Context,
    named: SensorPath,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Write a whole sensor, and return which pipelines read it."""
    body = await request.body()
    write = _write({**named, "data": _json(body)}, "")
    if isinstance(write, FieldError):
        raise WebProblem(ProblemType.INVALID, write.what, errors=[write])

    async def answer() -> Mapping[str, Json]:
        [written] = await _written(context, [write])
        return _record(written)

    given = _Repeatable(idempotency_key, _hash(request, body), write.name)
    return await _once(context, given, answer)


@sensors_router.post(
    "/sensors",
    summary="Write many sensors",
    status_code=202,
    response_model=SensorsAccepted,
    openapi_extra=_body(_BATCH, [{"pipeline": "orders-daily", "key": "orders-export", "data": {"rows": 1200}}]),
)
async def write_sensors(request: Request, context: Context, idempotency_key: IdempotencyKey = None) -> Response:
    """Write at most 500 sensors. If one is not valid, none is written, and the problem names every error."""
    body = await request.body()
    writes = _batch(_json(body))

    async def answer() -> Mapping[str, Json]:
        items: list[Json] = [_record(written) for written in await _written(context, writes)]
        return {"items": items, "count": len(items)}

    given = _Repeatable(idempotency_key, _hash(request, body), writes[0].name)
    return await _once(context, given, answer)


# --- once -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Repeatable:
    """A request that may be repeated; its answer is kept with the pipeline of its first sensor."""

    key: str | None
    content_hash: str
    first: SensorName


async def _once(context: ApiContext, given: _Repeatable, answer: Any) -> Response:  # noqa: ANN401
    """Answer, or repeat the answer that was given for the same key."""
    if given.key is None:
        return Response(to_json(await answer()), 202, media_type=JSON)
    answered, pipeline = AnsweredRequests(context.tables), given.first.pipeline
    before = await answered.get(pipeline, given.key)
    if before is not None:
        if before.content_hash != given.content_hash:
            raise WebProblem(ProblemType.CONFLICT, "this Idempotency-Key was used for another request; use a new one")
        return Response(before.response, 202, {REPLAYED: "true"}, JSON)
    content = to_json(await answer())
    # After the writes: a sender that got no answer repeats the request, and then the same content is written again.
    kept = AnsweredRequest(given.content_hash, content.decode())
    await answered.put(pipeline, given.key, kept, context.clock.now())
    return Response(content, 202, media_type=JSON)


def _hash(request: Request, body: bytes) -> str:
    target = f"{request.url.path}?{request.url.query}\0".encode()
    return hashlib.sha256(target + body).hexdigest()


# --- content ----------------------------------------------------------------------------------------------------------


def _json(body: bytes) -> Json:
    try:
        return read_json(body)
    except ValueError as error:
        raise WebProblem(ProblemType.BAD_REQUEST, f"the body is not JSON: {error}") from error


def _batch(content: Json) -> list[SensorWrite]:
    if not isinstance(content, list) or not 1 <= len(content) <= BATCH_MAX:
        raise WebProblem(ProblemType.INVALID, f"the body must be an array of 1 to {BATCH_MAX} sensors")
    writes, errors, seen = list[SensorWrite](), list[FieldError](), set[tuple[str, str]]()
    for number, each in enumerate(content):
        write = _write(each, f"{number}")
        if isinstance(write, FieldError):
            errors.append(write)
            continue
        name = (write.name.pipeline, write.name.stored_key)
        if name in seen:
            errors.append(FieldError(f"{number}.key", f"{name[1]} of {name[0]} is in this batch twice"))
        seen.add(name)
        writes.append(write)
    if errors:
        detail = f"{len(errors)} of {len(content)} sensors are not valid; nothing was written"
        raise WebProblem(ProblemType.INVALID, detail, errors=errors[:ERRORS_MAX])
    return writes


def _write(given: Json, place: str) -> SensorWrite | FieldError:
    """Read one sensor; return what is wrong with it if it is not valid."""
    here = f"{place}." if place else ""
    if not isinstance(given, Mapping):
        return FieldError(place, "must be an object with pipeline, key and data")
    if unknown := sorted(set(given) - {"pipeline", "key", "period", "data"}):
        return FieldError(f"{here}{unknown[0][:60]}", "is not a field of a sensor")
    pipeline, key, period, data = (given.get(name) for name in ("pipeline", "key", "period", "data"))
    if not isinstance(pipeline, str) or not _is_name(pipeline, 64):
        return FieldError(f"{here}pipeline", "must be the id of a pipeline")
    if not isinstance(key, str) or not _is_name(key, KEY_MAX):
        return FieldError(f"{here}key", f"must be text of 1 to {KEY_MAX} characters, without control characters")
    if not isinstance(data, Mapping):
        return FieldError(f"{here}data", "must be an object: a sensor holds named fields")
    if period is not None and not isinstance(period, str):
        return FieldError(f"{here}period", "must be text, such as 2027-03-22")
    try:
        return SensorWrite(name=sensor_name(pipeline, key, period), data=data)
    except ConfigError as error:
        return FieldError(f"{here}period", str(error))


def _is_name(text: str, longest: int) -> bool:
    return 0 < len(text) <= longest and text.isprintable()


async def _written(context: ApiContext, writes: Sequence[SensorWrite]) -> list[WrittenSensor]:
    try:
        return await context.sensors.write(writes)
    except TooLarge as error:
        raise WebProblem(ProblemType.INVALID, str(error)) from error


def _record(written: WrittenSensor) -> dict[str, Json]:
    return {
        "type": "sensor",
        "pipeline": written.name.pipeline,
        "key": written.name.stored_key,
        "readBy": list(written.read_by),
        "warnings": list(written.warnings),
    }
