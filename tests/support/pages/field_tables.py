"""The tables of docs/pipeline-file.md, made from the schema, so that page, editors and loader say the same.

`python -m tests.support.pages.field_tables` brings the page up to date; a test fails while it is not.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from worker.config.schema import CalendarFile, PipelineFile, file_schema
from worker.jobs.specs import JOB_CONFIGS
from worker.probes.specs import PROBE_CONFIGS

PAGE = Path(__file__).parents[3] / "docs" / "pipeline-file.md"

Node: TypeAlias = Mapping[str, Any]

# What a section is called where another one refers to it; the others are named by their own heading.
NAMES = {
    "RuleSection": "rule",
    "AnyGroup": "group",
    "AllGroup": "group",
    "AtLeastGroup": "group",
    "AtLeast": "`{atLeast: N}`",
    "MisfireSection": "`{policy, maxLateness}`",
    "CalendarDate": "`{date, name}`",
    "Auth": "`auth` section",
}
# Not in the schema: keys of targets are found in other spellings too.
_OF_TARGETS = {model.__name__: model.required for model in (*JOB_CONFIGS.values(), *PROBE_CONFIGS.values())}
# `<!-- fields: A beyond B -->` lists what A has and B has not.
_TABLE = re.compile(
    r"(?P<begin><!-- fields: (?P<name>\w+)(?: beyond (?P<less>\w+))? -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)


def sections() -> dict[str, Node]:
    """Every mapping a file can hold, by the name of its model."""
    pipeline, calendar = file_schema(PipelineFile), file_schema(CalendarFile)
    return {**pipeline["$defs"], **calendar["$defs"], "PipelineFile": pipeline, "CalendarFile": calendar}


def table_names(page: str) -> list[str]:
    return [match["name"] for match in _TABLE.finditer(page)]


def with_fresh_tables(page: str) -> str:
    all_sections = sections()
    known: dict[str, Mapping[str, Node]] = {name: node.get("properties", {}) for name, node in all_sections.items()}

    def fresh(match: re.Match[str]) -> str:
        told_elsewhere = known.get(match["less"], {})
        fields = {key: node for key, node in known[match["name"]].items() if key not in told_elsewhere}
        required = {*all_sections[match["name"]].get("required", ()), *_OF_TARGETS.get(match["name"], ())}
        return f"{match['begin']}{table(fields, required)}{match['end']}"

    return _TABLE.sub(fresh, page)


def table(fields: Mapping[str, Node], required: Collection[str] = ()) -> str:
    defaults = {key: "required" if key in required else default(node) for key, node in fields.items()}
    rows = [
        f"| `{key}` | {kind(node)} | {defaults[key]} | {_cell(node.get('description', ''))} |"
        for key, node in fields.items()
    ]
    return "\n".join(["| Key | Kind | Default | Meaning |", "| --- | --- | --- | --- |", *rows, ""])


def default(node: Node) -> str:
    value = node.get("default")
    if value in (None, "", [], {}) or isinstance(value, dict):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def kind(node: Node) -> str:
    return " or ".join(dict.fromkeys(_kinds(node)))


def _kinds(node: Node) -> Iterator[str]:
    branches = node.get("anyOf") or node.get("oneOf")
    if branches:
        for branch in branches:
            yield from _kinds(branch)
    elif "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        yield NAMES.get(name, "section")
    elif "enum" in node or "const" in node:
        yield ", ".join(f"`{value}`" for value in node.get("enum") or [node["const"]] if value != "")
    elif node.get("type") == "array":
        yield f"list of {kind(node['items'])}"
    elif node.get("type") != "null":
        yield _plain(node)


def _plain(node: Node) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    words = {"string": "text", "integer": "number", "number": "number", "boolean": "true, false", "object": "mapping"}
    word = words.get(node.get("type", ""), "anything")
    if low is not None and high is not None:
        return f"{word} {low} to {high}"
    return f"{word} from {low}" if low is not None else word


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(with_fresh_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
