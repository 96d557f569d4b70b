"""Reads JSON as people and producers write it: numbers exactly, and nothing that JSON does not have."""

import json
from decimal import Decimal
from typing import NoReturn

from worker.core.model.values import Json


def read_json(text: str | bytes) -> Json:
    """Read JSON with exact numbers. Raises `ValueError`, also for too much nesting or too many digits."""
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_refuse, object_pairs_hook=_members)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number JSON knows")


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has the same field twice")
    return members
