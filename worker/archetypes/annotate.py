"""Annotation: a resolved file as YAML text, with a comment on where each line is written."""

import json
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final, cast

from worker.archetypes.merge import OriginKind, ResolvedFile
from worker.yaml.document import Document, Path
from worker.yaml.parser import is_text

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_COMMENT_AT: Final = 56  # the column of comments, where lines are short enough


def annotated(value: object, document: Document, file: str, resolved: ResolvedFile | None) -> str:
    """Return a file as text that loads as the same pipeline without its archetype."""
    lines = [(f"{text}", _comment(path, document, file, resolved)) for text, path in _lines(value, (), "")]
    return "".join(f"{text.ljust(_COMMENT_AT)}  # {note}\n" if note else f"{text}\n" for text, note in lines)


def _comment(path: Path, document: Document, file: str, resolved: ResolvedFile | None) -> str:
    name = PurePath(file).name
    if resolved is None:
        return f"{name}:{document.locate(path, key=True).line}"
    if path[:2] == ("pipeline", "archetype"):
        return "the archetype, as it was resolved"
    origin = resolved.origin_of(path)
    here = f"{name}:{document.locate(origin.path, key=True).line}"
    archetype = resolved.archetype
    if origin.kind is OriginKind.FILE:
        return here
    if origin.kind is OriginKind.BOTH:
        return f"{here} and archetype {archetype.id}"
    line = archetype.document.locate(origin.path, key=True).line
    named = resolved.parameters.get(origin.path, ())
    filled = f" with {', '.join(named)}" if named else ""
    return f"archetype {archetype.id}:{line}{filled}"


def _lines(value: object, at: Path, indent: str) -> Iterator[tuple[str, Path]]:
    if isinstance(value, dict):
        for key, member in cast("dict[str, object]", value).items():
            yield from _member(f"{indent}{_scalar(key)}:", member, (*at, key), indent)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            yield from _item(item, (*at, index), indent)


def _member(head: str, member: object, at: Path, indent: str) -> Iterator[tuple[str, Path]]:
    if isinstance(member, dict | list) and member:
        yield head, at
        yield from _lines(cast("object", member), at, f"{indent}  ")
    else:
        yield f"{head} {_scalar(cast('object', member))}", at


def _item(item: object, at: Path, indent: str) -> Iterator[tuple[str, Path]]:
    below = list(_lines(item, at, f"{indent}  "))
    if not below:
        yield f"{indent}- {_scalar(item)}", at
        return
    (first, path), *rest = below
    yield f"{indent}- {first[len(indent) + 2 :]}", path
    yield from rest


def _scalar(value: object) -> str:
    """Return a value on one line. JSON is YAML, and quotes keep what looks like another type a text."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and is_text(value):
        return value
    return json.dumps(value)
