"""Reads a plain value into a model and reports every mistake in its shape at once.

A value that does not fit is reported and removed, and the rest is read again. So one wrong key does not hide other
mistakes, and the meaning of everything that fits can still be checked.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from worker.config.problems import Problems, advise, show
from worker.config.suggestions import closest, suggest
from worker.core.time.durations import parse_duration
from worker.yaml.document import Path, loose
from worker.yaml.parser import DEPTH_MAX

Model = TypeVar("Model", bound=BaseModel)
Node = dict[str, Any]

# Each pass removes or corrects at least one level of the value, and a value is no deeper than this.
_PASSES_MAX = 2 * DEPTH_MAX

# Keys of the previous generation, and what replaces them.
_REPLACED = {
    "archetype": "a file builds on an archetype with `extends: {archetype: NAME}`",
    "traits": "each trait is now a rule in validation.rules",
    "watch": "the waiting time is now schedule.evaluation",
    "evaluators": "producers write sensors, and validation.rules check them",
    "readiness": "how many rules must hold is now validation.trigger",
    "cascade": "a downstream pipeline names its upstream sensor in schedule.trigger",
    "tier": "it has no effect and can be removed",
    "trigger": "the job to start is now `job`, and the condition that starts it is schedule.trigger",
}

# What a lenient reading does about an unknown word, if there is no default.
_INSTEAD = {"check": "the rule never holds", "type": "there is no job to start"}

_WANTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_KINDS = {"<text>": "text", "<number>": "a number", "<list>": "a list", "<mapping>": "a mapping"}


def read_shape(model: type[Model], value: object, problems: Problems, at: Path = ()) -> Model | None:
    """Read the value at path `at` into a model; None only if no part of it fits."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        return _LenientShape(model, _unshared(value), problems, at).finish(error)


@lru_cache(maxsize=64)
def _schema(model: type[BaseModel]) -> Node:
    return model.model_json_schema(by_alias=True)


class _LenientShape:
    """Reads a value that has mistakes."""

    def __init__(self, model: type[BaseModel], value: object, problems: Problems, at: Path) -> None:
        self._model, self._problems, self._at = model, problems, at
        self._value: object = value
        self._taken_out: set[Path] = set()

    def finish(self, error: ValidationError) -> Any:  # noqa: ANN401 - the caller's own model
        for _ in range(_PASSES_MAX):
            if not _is_mapping(self._value):
                self._report(error.errors(include_url=False)[0], ())
                return None
            for details in error.errors(include_url=False):
                self._mend(details)
            try:
                return self._model.model_validate(self._value)
            except ValidationError as next_error:
                error = next_error
        return None

    def _mend(self, details: ErrorDetails) -> None:
        path = self._path_of(details)
        if self._problems.lenient and self._adapt(details, path):
            return
        if path not in self._taken_out:
            self._report(details, path)
            self._forgive_meant_key(details, path)
        target = path[:-1] if details["type"] == "missing" else path
        # A replaced value that still does not fit is removed together with its container.
        while target in self._taken_out and target and _is_there(self._value, target):
            target = target[:-1]
        self._take_out(target, details)
        self._taken_out.update((path, target))
        self._problems.mark_broken((*self._at, *target))

    def _forgive_meant_key(self, details: ErrorDetails, path: Path) -> None:
        """Mark the key that a misspelt one stands for as known, so that it is not also reported as missing."""
        if details["type"] == "extra_forbidden" and not self._problems.lenient and not self._problems.is_full:
            meant = closest(path[-1], _known_keys(self._model, path[:-1]))
            if meant is not None and not _is_there(self._value, (*path[:-1], meant)):
                self._problems.mark_broken((*self._at, *path[:-1], meant))

    def _path_of(self, details: ErrorDetails) -> Path:
        """Return the path without the tags that distinguish the members of a union."""
        path: list[str | int] = []
        current = self._value
        for part in details["loc"]:
            is_tag = isinstance(part, str) and part[:1] == "<" and part[-1:] == ">"
            if is_tag and _member(current, part) is None:
                continue
            path.append(part)
            current = _member(current, part)
        return tuple(path)

    def _adapt(self, details: ErrorDetails, path: Path) -> bool:
        """Accept what the Lambda edition accepted: other cases of a key, numbers where texts are needed."""
        parent, found = _at(self._value, path[:-1]), details["input"]
        if details["type"] == "extra_forbidden" and isinstance(parent, dict):
            members = cast("dict[str | int, object]", parent)
            known = {key.lower(): key for key in _known_keys(self._model, path[:-1])}
            name = known.get(str(path[-1]).lower())
            if name is not None and name not in members:
                members[name] = members.pop(path[-1])
                return True
        if details["type"] == "string_type" and isinstance(found, int | float) and isinstance(parent, dict | list):
            text = str(found).lower() if isinstance(found, bool) else str(found)
            cast("dict[str | int, object]", parent)[path[-1]] = text
            self._problems.warning((*self._at, *path), f'must be text, found {show(found)}; read as "{text}"')
            return True
        return False

    def _take_out(self, path: Path, details: ErrorDetails) -> None:
        parent = _at(self._value, path[:-1])
        if not path or not _is_there(self._value, path):
            return
        if isinstance(parent, dict):
            members = cast("dict[str | int, object]", parent)
            del members[cast("str", _spelled(members, path[-1]))]
        else:
            # Later items keep their indexes, so that messages about them still point at them.
            cast("list[object]", parent)[cast("int", path[-1])] = "" if details["type"] == "string_type" else {}

    def _report(self, details: ErrorDetails, path: Path) -> None:
        kind, full = details["type"], (*self._at, *path)
        message, hint = ("", "") if self._problems.is_full else self._describe(details, path)
        if kind == "extra_forbidden":
            self._problems.tolerate(full, message, hint, instead="ignored", key=True)
        elif kind == "literal_error":
            instead = _INSTEAD.get(str(path[-1]), "the default is used")
            self._problems.tolerate(full, message, hint, instead=instead)
        else:
            self._problems.error(full, message, hint, key=kind == "missing")

    def _describe(self, details: ErrorDetails, path: Path) -> tuple[str, str]:
        # As written in the file; the model may have seen a converted value.
        kind, found, context = details["type"], _at(self._value, path), details.get("ctx", {})
        if kind == "extra_forbidden":
            return self._describe_unknown_key(path)
        if kind == "literal_error":
            options = [option for option in _options(self._model, path) if option]
            members = dict.fromkeys(key for node in _nodes(self._model, path) for key in node.get("properties", ()))
            mapping = f", or a mapping with {', '.join(members)}" if members else ""
            return f"must be one of {', '.join(options)}{mapping}; found {show(found)}", suggest(found, options)
        if kind in {"greater_than_equal", "less_than_equal"}:
            low, high = (_bound(self._model, path, name) for name in ("minimum", "maximum"))
            bounds = f"at least {low}" if high == "" else f"between {low} and {high}"
            return f"must be {bounds}; found {found}", ""
        if kind == "string_pattern_mismatch":
            return _describe_pattern(str(context["pattern"]), found)
        if kind == "union_tag_invalid":
            tags = str(context["expected_tags"]).replace("'", "").split(", ")
            return f"must be {' or '.join(_KINDS.get(tag, tag) for tag in tags)}; found {show(found)}", ""
        if kind == "too_long":
            return f"has {context['actual_length']} items; at most {context['max_length']} are accepted", ""
        if kind == "missing":
            return "is required", ""
        wanted = _WANTED.get(kind)
        if wanted is None:
            return f"{details['msg']}; found {show(found)}", ""
        if kind == "string_type" and _is_number(found) and _is_duration(self._model, path):
            return f"must be a duration; found {show(found)}", f"add a unit: {found}s, {found}m, {found}h or {found}d"
        if found is None and not (*self._at, *path):
            keys = ", ".join(_known_keys(self._model, ()))
            return f"must be {wanted}; found nothing", f"the file is empty; accepted: {keys}"
        return f"must be {wanted}; found {show(found)}", _advice(kind, found)

    def _describe_unknown_key(self, path: Path) -> tuple[str, str]:
        name = str(path[-1])
        if not (*self._at, *path)[:-1] and name in _REPLACED:
            return f"`{name}` is a key of an older generation", _REPLACED[name]
        return f"`{name[:64]}` is not a key here", advise(name, _known_keys(self._model, path[:-1]))


def _describe_pattern(pattern: str, found: object) -> tuple[str, str]:
    if "https" in pattern:
        return f"must begin with http:// or https://; found {show(found)}", ""
    return (
        f"is not a name; found {show(found)}",
        "a name has 1 to 64 letters, digits, `.`, `_` or `-`, and begins with a letter or digit",
    )


def _advice(kind: str, found: object) -> str:
    if kind == "string_type" and isinstance(found, bool | int | float):
        return "put it in quotes"
    if kind in {"int_type", "float_type"} and isinstance(found, str):
        return "write the number without quotes or a unit"
    if kind == "list_type" and isinstance(found, dict | str):
        return "begin each item with `- `, or put the items in [ ]"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict)


def _unshared(value: object) -> object:
    """Return a copy without shared parts: an alias may be wrong in one place and right in another."""
    if isinstance(value, dict):
        return {key: _unshared(member) for key, member in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_unshared(item) for item in cast("list[object]", value)]
    return value


def _at(value: object, path: Path) -> object:
    for part in path:
        value = _member(value, part)
    return value


def _member(container: object, part: str | int) -> object:
    if isinstance(container, dict):
        members = cast("dict[str | int, object]", container)
        name = _spelled(members, part)
        return None if name is None else members[name]
    if isinstance(container, list) and isinstance(part, int):
        items = cast("list[object]", container)
        return items[part] if part < len(items) else None
    return None


def _is_there(value: object, path: Path) -> bool:
    parent = _at(value, path[:-1])
    if isinstance(parent, dict):
        return _spelled(cast("dict[str | int, object]", parent), path[-1]) is not None
    return isinstance(parent, list) and isinstance(path[-1], int) and path[-1] < len(cast("list[object]", parent))


def _spelled(members: dict[str | int, object], part: str | int) -> str | int | None:
    """Return the key as the file spells it; job configurations allow several spellings."""
    if part in members or isinstance(part, int):
        return part if part in members else None
    return next((name for name in members if loose(str(name)) == loose(part)), None)


# --- the schema at a path ---------------------------------------------------------------------------------------------


def _known_keys(model: type[BaseModel], path: Path) -> list[str]:
    return list(dict.fromkeys(key for node in _nodes(model, path) for key in node.get("properties", {})))


def _options(model: type[BaseModel], path: Path) -> list[str]:
    return [str(option) for node in _nodes(model, path) for option in node.get("enum", ())]


def _bound(model: type[BaseModel], path: Path, name: str) -> object:
    return next((node[name] for node in _nodes(model, path) if name in node), "")


def _is_duration(model: type[BaseModel], path: Path) -> bool:
    """Return whether the value at `path` is a duration, as its examples show."""
    examples = _bound(model, path, "examples")
    texts = cast("list[object]", examples) if isinstance(examples, list) else []
    return bool(texts) and all(isinstance(text, str) and parse_duration(text) is not None for text in texts)


def _nodes(model: type[BaseModel], path: Path) -> Iterator[Node]:
    """Return every part of the schema that describes the value at `path`."""
    schema = _schema(model)
    nodes = list(_alternatives(schema, schema))
    for part in path:
        nodes = [found for node in nodes for child in _children(node, part) for found in _alternatives(child, schema)]
    return iter(nodes)


def _children(node: Node, part: str | int) -> Iterator[Node]:
    if isinstance(part, int):
        candidates = [node.get("items")]
    else:
        candidates = [node.get("properties", {}).get(part), node.get("additionalProperties")]
    return (cast("Node", candidate) for candidate in candidates if isinstance(candidate, dict))


def _alternatives(node: Node, schema: Node) -> Iterator[Node]:
    if "$ref" in node:
        yield from _alternatives(schema["$defs"][node["$ref"].rpartition("/")[2]], schema)
        return
    yield node
    for name in ("anyOf", "oneOf", "allOf"):
        for member in node.get(name, ()):
            yield from _alternatives(member, schema)
