"""Fill the texts of inbox rules from a notification: `${date}`, `${detail.rows}`.

`$${` is a literal `${`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from worker.core.errors import Rejected
from worker.core.model.templates import names, render
from worker.core.model.values import Json

TEXT_CHARS_MAX: Final = 1024


class Unfilled(Rejected):
    """Reports a text that needs a value which the notification does not have."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(f"`{text}` needs `{name}`, and the message has none, or no text or number")
        self.name = name


class _Nothing:
    """Marks a value that the notification does not have; null is a value."""


_NOTHING: Final = _Nothing()


@dataclass(frozen=True, slots=True)
class Facts:
    """Holds the values of a notification by name. If no name is `a.b`, it is the `b` inside `a`."""

    said: Mapping[str, Json]

    def value(self, name: str) -> "Json | _Nothing":
        found: Json = self.said
        if name in self.said:
            return self.said[name]
        for part in name.split("."):
            if not isinstance(found, Mapping) or part not in found:
                return _NOTHING
            found = found[part]
        return found


def fill_text(text: str, facts: Facts) -> str:
    """Fill a text. Raises `Unfilled` if a value is missing, because an incomplete name is a wrong name."""
    return render(text, {name: _as_text(text, name, facts) for name in names(text)})


def fill_fields(fields: Mapping[str, Json], facts: Facts) -> dict[str, Json]:
    """Fill the texts among fields and keep other values.

    A field that consists of one variable keeps the type of its value, and is left out if there is no value.
    """
    filled: dict[str, Json] = {}
    for name, value in fields.items():
        variable = _only_variable(value)
        found = facts.value(variable) if variable is not None else _NOTHING
        if variable is None:
            filled[name] = fill_text(value, facts) if isinstance(value, str) else value
        elif not isinstance(found, _Nothing):
            filled[name] = found
    return filled


def _only_variable(value: Json) -> str | None:
    if not isinstance(value, str):
        return None
    named = list(names(value))
    return named[0] if len(named) == 1 and value == f"${{{named[0]}}}" else None


def _as_text(text: str, name: str, facts: Facts) -> str:
    match facts.value(name):
        case bool() as flag:
            return "true" if flag else "false"
        case str() | int() | float() | Decimal() as value:
            return str(value)
        case _:
            raise Unfilled(text, name)
