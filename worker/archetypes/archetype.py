"""Archetype: a part of pipeline files that many pipelines share, with parameters."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from worker.archetypes.parameters import (
    NAME,
    PARAMETERS_MAX,
    WORDS,
    Parameter,
    ParameterType,
    problem_of,
    references,
)
from worker.yaml.document import Document, Path

HEADER: Final = "archetype"
# What an archetype may hold; the rest of a file belongs to one pipeline.
SECTIONS: Final = (
    "pipeline", "job", "schedule", "schedules", "exclusions", "calendars", "sla", "validation", "postRun", "dryRun",
    "probes",
)  # fmt: skip
_HEADER_KEYS: Final = ("id", "description", "parameters")
_PARAMETER_KEYS: Final = ("type", "default", "description")

# Reports one mistake: its path, what is wrong, and what to do.
Report = Callable[[Path, str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Archetype:
    """Archetype: the parsed file. `hash` identifies its content, whatever its comments and spelling."""

    id: str
    file: str
    document: Document
    parameters: Mapping[str, Parameter]
    body: Mapping[str, object]
    hash: str = field(default="")


def read_archetype(document: Document, file: str, report: Report) -> Archetype | None:
    """Read an archetype and report every mistake of its own; None if it cannot be used."""
    value = document.value
    if not isinstance(value, dict):
        report((), "must be a mapping with the key `archetype`", "see the page about archetypes")
        return None
    members = cast("dict[str, object]", value)
    header = members.get(HEADER)
    if not isinstance(header, dict):
        report((), "has no section `archetype`", "begin with `archetype: {id: NAME, parameters: {}}`")
        return None
    sections = cast("dict[str, object]", header)
    for key in sections:
        if key not in _HEADER_KEYS:
            report((HEADER, key), f"`{key}` is not a key here", f"accepted: {', '.join(_HEADER_KEYS)}")
    name = sections.get("id")
    if not isinstance(name, str) or not name:
        report((HEADER, "id"), "is required: the name that pipelines extend", "")
        return None
    parameters = _read_parameters(sections.get("parameters"), report)
    body = {key: member for key, member in members.items() if key != HEADER}
    _check_body(body, parameters, report)
    return Archetype(
        id=name, file=file, document=document, parameters=parameters, body=body, hash=_hash(cast("object", members))
    )


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _check_body(body: Mapping[str, object], parameters: Mapping[str, Parameter], report: Report) -> None:
    if "extends" in body:
        report(("extends",), "an archetype cannot extend another one", "write its parts out, or extend only this one")
    for key in body:
        if key not in SECTIONS and key != "extends":
            report((key,), f"`{key}` is not a section of an archetype", f"accepted: {', '.join(SECTIONS)}")
    about = body.get("pipeline")
    if isinstance(about, dict) and "id" in cast("dict[str, object]", about):
        report(("pipeline", "id"), "an archetype has no pipeline id", "give it in each pipeline file")
    for path, name, is_whole in references(dict(body)):
        parameter = parameters.get(name)
        if parameter is None:
            hint = f"declare it; in a job, `$${{{name}}}` is the text `${{{name}}}`"
            report(path, f"`${{{name}}}` is not a parameter", hint)
        elif parameter.type is ParameterType.LIST and not is_whole:
            report(path, f"`{name}` is a list, and a list cannot be part of a text", f'write "${{{name}}}" alone')


def _read_parameters(given: object, report: Report) -> dict[str, Parameter]:
    at: Path = (HEADER, "parameters")
    if given is None:
        return {}
    if not isinstance(given, dict):
        report(at, "must be a mapping of names to types", "for example {minRows: {type: number, default: 1000}}")
        return {}
    members = cast("dict[str, object]", given)
    if len(members) > PARAMETERS_MAX:
        report(at, f"has {len(members)} parameters; at most {PARAMETERS_MAX} are accepted", "")
        return {}
    found = {name: _read_parameter(name, member, (*at, name), report) for name, member in members.items()}
    return {name: parameter for name, parameter in found.items() if parameter is not None}


def _read_parameter(name: str, given: object, at: Path, report: Report) -> Parameter | None:
    if not NAME.fullmatch(name):
        report(at, f"`{name[:64]}` is not a name for a parameter", "begin with a small letter; letters, digits and `_`")
        return None
    if not isinstance(given, dict):
        report(at, "must be a mapping", "for example {type: text}")
        return None
    members = cast("dict[str, object]", given)
    for key in members:
        if key not in _PARAMETER_KEYS:
            report((*at, key), f"`{key}` is not a key here", f"accepted: {', '.join(_PARAMETER_KEYS)}")
    kinds = {kind.value: kind for kind in ParameterType}
    kind = kinds.get(str(members.get("type", "")))
    if kind is None:
        report((*at, "type"), f"must be one of {', '.join(kinds)}", "")
        return None
    has_default = "default" in members
    if has_default and (problem := problem_of(members["default"], kind)):
        report((*at, "default"), problem, f"the type is {kind}: {WORDS[kind]}")
        return None
    return Parameter(type=kind, default=members.get("default"), has_default=has_default)
