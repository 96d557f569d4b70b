"""The tables of docs/http-api.md, made from the API's own OpenAPI document.

`python -m tests.support.pages.api_reference` updates the page; a test fails while it is outdated.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from worker.runtime.clock import SystemClock
from worker.store.sqlite.tables import SqliteTables
from worker.web.api.application import PREFIX, make_api
from worker.web.api.context import ApiContext
from worker.web.problems import ProblemType

PAGE = Path(__file__).parents[3] / "docs" / "http-api.md"
_PART = re.compile(r"(?P<begin><!-- (?P<name>operations|documents|problems) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def with_fresh_parts(page: str) -> str:
    document = _document()
    parts = {"operations": _operations(document), "documents": _documents(document), "problems": _problems()}
    return _PART.sub(lambda found: f"{found['begin']}{parts[found['name']]}{found['end']}", page)


def _document() -> Mapping[str, Any]:
    clock = SystemClock()
    return make_api(ApiContext(tables=SqliteTables.in_memory(clock), clock=clock)).openapi()


def _operations(document: Mapping[str, Any]) -> str:
    return "\n".join(_sections(document))


def _sections(document: Mapping[str, Any]) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            endpoint = f"{method.upper()} {path.removeprefix(PREFIX)}"
            row = f"| `{endpoint}` | {operation['description']}{_options(operation)} |"
            by_tag.setdefault(operation["tags"][0], []).append(row)
    for tag, rows in by_tag.items():
        yield from (f"### {tag.capitalize()}", "", "| Endpoint | Response |", "| --- | --- |", *rows, "")


def _options(operation: Mapping[str, Any]) -> str:
    """Name the parameters of a query, the members of a body, and the document that is returned."""
    names = [f"`{each['name']}`" for each in operation.get("parameters", ()) if each["in"] == "query"]
    query = f" Query: {', '.join(names)}." if names else ""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    sent = f" Body: {_linked(_name(body))}." if "$ref" in body else ""
    success = next(code for code in operation["responses"] if code.startswith("2"))
    contents = operation["responses"][success]["content"]
    if "application/json" not in contents:
        return f"{query}{sent} Returns `{'`, `'.join(contents)}`."
    returned = contents["application/json"]["schema"]
    kind = _name(returned)
    item = re.fullmatch(r"ListPage_(\w+)_", kind)
    shown = f"a list of {_linked(item[1])}" if item else _linked(kind)
    return f"{query}{sent} Returns {success}: {shown}."


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _linked(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _documents(document: Mapping[str, Any]) -> str:
    lines: list[str] = []
    for name, schema in sorted(document["components"]["schemas"].items()):
        if "properties" not in schema or name.startswith("ListPage"):
            continue
        required = set(schema.get("required", ()))
        lines += [f"### {name}", "", " ".join(schema.get("description", "").split()), ""]
        lines += ["| Field | Type | |", "| --- | --- | --- |"]
        for field, details in schema["properties"].items():
            about = " ".join(str(details.get("description", "")).split())
            optional = "" if field in required else "optional"
            lines.append(f"| `{field}` | {_type(details)} | {'; '.join(each for each in (optional, about) if each)} |")
        lines.append("")
    return "\n".join(lines)


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _linked(_name(schema))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema and len(schema["enum"]) < 6:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema.get("format") or schema.get("type") or "any JSON")


def _problems() -> str:
    rows = [f"| `{kind.value.slug}` | {kind.value.status} | {kind.value.title} |" for kind in ProblemType]
    return "\n".join(["| Type | Status | Title |", "| --- | --- | --- |", *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(with_fresh_parts(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
