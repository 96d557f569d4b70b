"""Reads parts of AWS responses defensively: missing or wrongly typed values read as empty."""

from collections.abc import Container, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

Answer: TypeAlias = Mapping[str, Any]


def text(answer: Answer, name: str) -> str:
    value = answer.get(name)
    return value if isinstance(value, str) else ""


def time(answer: Answer, name: str) -> datetime | None:
    value = answer.get(name)
    return value.astimezone(UTC) if isinstance(value, datetime) else None


def part(answer: Answer, name: str) -> Answer:
    value = answer.get(name)
    return cast("Answer", value) if isinstance(value, Mapping) else {}


def parts(answer: Answer, name: str) -> Iterator[Answer]:
    value = answer.get(name)
    members = cast("list[object]", value) if isinstance(value, list) else []
    return (cast("Answer", member) for member in members if isinstance(member, Mapping))


def by_id(answer: Answer, name: str, id_name: str, wanted: Container[str]) -> Iterator[tuple[str, Answer]]:
    """Yield the members of a list whose ids are wanted, each with its id."""
    for member in parts(answer, name):
        if (found := text(member, id_name)) in wanted:
            yield found, member
