"""How the vectors, written for the reference, are put to this program: the only place that translates.

It may translate, never skip. A case whose expectation we do not meet on purpose is listed, with its reason, in
`DEVIATIONS.md`; `tests/unit/test_vectors.py` fails for a deviation that is not listed, and for a listed one that no
longer deviates.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Case: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What this program says, and the answers the vector accepts."""

    got: object
    accepted: tuple[object, ...]

    @property
    def is_met(self) -> bool:
        return self.got in self.accepted


def expected(case: Case) -> tuple[object, ...]:
    return (case["expect"], *case.get("alsoAcceptable", ()))


# --- rules.json -------------------------------------------------------------------------------------------------------


# --- sla.json ---------------------------------------------------------------------------------------------------------


# --- config.json ------------------------------------------------------------------------------------------------------


# --- calendar.json ----------------------------------------------------------------------------------------------------


# --- schedule.json ----------------------------------------------------------------------------------------------------


TRANSLATORS: Mapping[str, Callable[[Case], Outcome]] = {}
