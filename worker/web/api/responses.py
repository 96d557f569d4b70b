"""Responses of the API: one record, a page of records, or the same as NDJSON."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import Request, Response

from worker.core.model.values import Json
from worker.runtime.json_bytes import to_json
from worker.web.api.schemas import ListPage, ProblemDocument

NDJSON: Final = "application/x-ndjson"
JSON: Final = "application/json"


def record(content: Mapping[str, Json], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return one record. It is written here, because pydantic would write exact numbers as text."""
    return Response(to_json(content), status, dict(headers or {}), JSON)


def page(request: Request, items: Sequence[Mapping[str, Json]], following: str | None = None) -> Response:
    """Return a page of a list, as the request accepts it. `following` is the cursor of the rest."""
    end: dict[str, Json] = {"count": len(items), "complete": following is None, "next": following}
    if _wants_lines(request):
        lines = [*items, {"type": "end", **end}]
        return Response(b"".join(to_json(line) + b"\n" for line in lines), media_type=NDJSON)
    return Response(to_json({"items": items, **end}), media_type=JSON)


def _wants_lines(request: Request) -> bool:
    """Return whether to write lines: a link of a page can say so only in its address."""
    chosen = request.query_params.get("format")
    return chosen == "ndjson" if chosen else NDJSON in request.headers.get("accept", "")


def listing(item: Any) -> dict[str, Any]:  # noqa: ANN401  any model
    """Return how a list is documented: as a page, and as lines."""
    return {
        "response_model": ListPage[item],
        "responses": {
            200: {"content": {NDJSON: {"schema": {"type": "string"}}}, "description": "A page, or one record a line"}
        },
    }


PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {"default": {"model": ProblemDocument, "description": "A problem"}}
