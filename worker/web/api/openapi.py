"""The OpenAPI document: what FastAPI derives from the handlers, with errors as they really are."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from worker.web.problems import PROBLEM_JSON, ProblemType

_UNUSED = ("HTTPValidationError", "ValidationError")  # FastAPI's own form of errors, which no response has


def openapi_document(api: FastAPI) -> dict[str, Any]:
    """Return the document, made once."""
    if api.openapi_schema is None:
        api.openapi_schema = _corrected(
            get_openapi(
                title=api.title,
                version=api.version,
                description=api.description,
                openapi_version="3.1.0",
                routes=api.routes,
            )
        )
    return api.openapi_schema


def _corrected(document: dict[str, Any]) -> dict[str, Any]:
    for path in document["paths"].values():
        for operation in path.values():
            responses: dict[str, Any] = operation["responses"]
            responses.pop("422", None)
            content = responses["default"]["content"]
            responses["default"]["content"] = {PROBLEM_JSON: content["application/json"]}
    components = document["components"]
    for name in _UNUSED:
        components["schemas"].pop(name, None)
    slugs = [f"urn:interlock:problem:{kind.value.slug}" for kind in ProblemType]
    components["schemas"]["ProblemDocument"]["properties"]["type"]["enum"] = slugs
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "Without one, a loopback server can be read."}
    }
    document["security"] = [{"token": []}, {}]
    return document
