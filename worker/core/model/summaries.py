"""Summaries: how many records a job saw, processed, skipped and failed on, as it reports.

A command job prints it as its last line, in JSON. Other jobs return it, or report it with their end: as the result
itself, or as its member `summary`.
"""

import json
from collections.abc import Mapping
from typing import Final, cast

from worker.core.model.values import Json

NAMES: Final = ("seen", "processed", "skipped", "errored")
NUMBER_MAX: Final = 10**15


def summary_of(outputs: Mapping[str, Json] | None) -> Mapping[str, int] | None:
    """Return the summary in what a job returned; None if there is none."""
    if outputs is None:
        return None
    said: list[Json] = [outputs.get("summary"), outputs.get("result"), outputs, _parsed(outputs.get("lastLine"))]
    said += [each["summary"] for each in said if isinstance(each, Mapping) and "summary" in each]
    return next((found for each in said if (found := _counts(each))), None)


def summary_text(summary: Mapping[str, int]) -> str:
    """Return a summary in words: `120 seen, 3 processed`."""
    return ", ".join(f"{summary[name]:,} {name}" for name in NAMES if name in summary)


def _counts(value: Json) -> Mapping[str, int] | None:
    if not isinstance(value, Mapping):
        return None
    found = {name: value.get(name) for name in NAMES}
    # A store may return whole numbers of other types; a truth value is no count.
    whole = {name: int(each) for name, each in found.items() if isinstance(each, int) and not isinstance(each, bool)}
    return whole if whole and all(0 <= each <= NUMBER_MAX for each in whole.values()) else None


def _parsed(line: Json) -> Json:
    if not isinstance(line, str) or not line.lstrip().startswith("{"):
        return None
    try:
        return cast("Json", json.loads(line))
    except ValueError:
        return None
