"""Read the keys of runs from standard input: `PIPELINE SCHEDULE PERIOD`, or records as NDJSON."""

import json
from collections.abc import Iterable, Iterator
from typing import Final, cast

from worker.core.errors import ConfigError
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.time.periods import Period

LINES_MAX: Final = 100_000
LINE_CHARS_MAX: Final = 1_000_000  # a record may hold the inputs of its run
_NOT_RUNS: Final = frozenset({"end", "truncated"})  # records that close a list
FORM: Final = "write PIPELINE SCHEDULE PERIOD, or a record of `interlock runs list --json`"


def read_keys(lines: Iterable[str]) -> Iterator[RunKey]:
    """Yield a key for each line that has one. Raises `ConfigError` with the line that has none."""
    for number, line in enumerate(lines, start=1):
        if number > LINES_MAX or len(line) > LINE_CHARS_MAX:
            raise ConfigError(f"standard input has more than {LINES_MAX:,} lines, or a line is too long; split it")
        if not (text := line.strip()) or text.startswith("#"):
            continue
        parts = _of_record(text, number) if text.startswith("{") else text.split()
        if parts is not None:
            yield _key(parts, number)


def _of_record(text: str, number: int) -> list[str] | None:
    try:
        record = cast("dict[str, object]", json.loads(text))
    except ValueError:
        raise ConfigError(f"line {number} of standard input is not JSON; {FORM}") from None
    if record.get("type") in _NOT_RUNS:
        return None
    return [str(record.get(name, "")) for name in ("pipeline", "schedule", "period")]


def _key(parts: list[str], number: int) -> RunKey:
    period = Period.parse(parts[2]) if len(parts) == 3 else None
    if period is None or not all(parts):
        raise ConfigError(f"line {number} of standard input names no run: {' '.join(parts)[:80]!r}; {FORM}")
    return RunKey(PipelineId(parts[0]), ScheduleId(parts[1]), period)
