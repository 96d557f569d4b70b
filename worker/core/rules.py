"""Rules: what must be true of the sensors, and a sentence for each that says why it is or is not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | Decimal | str | Sequence[Json] | Mapping[str, Json] | None"


class Check(StrEnum):
    EXISTS = "exists"
    MISSING = "missing"
    EQUALS = "equals"
    NOT_EQUALS = "not_equals"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    BETWEEN = "between"
    MATCHES = "matches"
    AGE_LT = "age_lt"
    AGE_GT = "age_gt"


class Mode(StrEnum):
    ALL = "ALL"
    ANY = "ANY"
    AT_LEAST = "AT_LEAST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One condition on one sensor. `field` None means the sensor as a whole (`exists`, `missing`)."""

    key: str
    check: Check
    field: str | None = None
    value: Json = None
    max_future: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rules that hold together: all, any, or at least `count` of them. Groups nest."""

    mode: Mode = Mode.ALL
    members: "tuple[Rule | Group, ...]" = ()
    count: int = 0
