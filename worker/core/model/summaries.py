"""Summaries: how many records a job saw, processed, skipped and failed on, as it reports.

A command job prints it as its last line, in JSON. Other jobs return it, or report it with their end: as the result
itself, or as its member `summary`. Any job may also put it while it runs; what was put counts first.
"""

import json
from collections.abc import Mapping
from typing import Final, cast

from worker.core.model.values import Json

NAMES: Final = ("seen", "processed", "skipped", "errored")
NUMBER_MAX: Final = 10**15
SUMMARY_KEY: Final = "summary"  # what post-run rules call the run's own summary


def summary_of(outputs: Mapping[str, Json] | None) -> Mapping[str, int] | None:
    """Return the summary in what a job returned; None if there is none."""
    if outputs is None:
        return None
    said: list[Json] = [outputs.get("summary"), outputs.get("result"), outputs, _parsed(outputs.get("lastLine"))]
    said += [each["summary"] for each in said if isinstance(each, Mapping) and "summary" in each]
    return next((found for each in said if (found := _counts(each))), None)


def merged_summary(found: Mapping[str, int] | None, put: Mapping[str, int] | None) -> Mapping[str, int] | None:
    """Return a summary from what the job returned and what was put while it ran; None if both are none."""
    return {**(found or {}), **(put or {})} or None


def is_count(value: object) -> bool:
    """Return whether a value is a number that a summary may have."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= NUMBER_MAX


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
