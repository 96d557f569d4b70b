"""How fast pipeline files load, against what reading the same bytes costs without us.

Peers, all over the same texts in the same run: `yaml.CSafeLoader` plus a JSON copy (what libyaml alone takes),
`yaml.safe_load` plus the same pydantic models (the usual way, without locations, meaning or lint).
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

import yaml

from worker.config.load import load_text
from worker.config.schema import PipelineFile

FILES = 300
REPEATS = 3
TODAY = date(2026, 1, 1)

_TEXT = """\
pipeline: {{id: orders-{n}, owner: data-platform, description: Orders of one day}}
schedule:
  cron: "{minute} 6 * * *"
  timezone: America/New_York
  trigger: {{key: orders-loaded-{n}, check: equals, field: status, value: ready}}
  exclude: {{weekends: true, dates: ["2026-12-25", "2026-01-01"]}}
  evaluation: {{window: 2h, interval: 5m}}
sla: {{deadline: "09:30", expectedDuration: 45m}}
validation:
  trigger: ALL
  rules:
    - {{key: orders-loaded-{n}, check: equals, field: status, value: ready}}
    - {{key: orders-count-{n}, check: gte, field: count, value: 1000}}
    - {{key: orders-count-{n}, check: age_lt, field: updatedAt, value: 24h}}
    - any:
        - {{key: region-eu-{n}, check: exists}}
        - {{key: region-us-{n}, check: exists}}
job:
  type: glue
  config:
    jobName: orders-{n}
    arguments: {{"--day": "${{DATE}}", "--env": production}}
  maxRetries: 2
postRun:
  rules:
    - {{key: orders-out-{n}, check: gte, field: sensor_count, value: 1}}
"""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    files_per_second: float
    ratio: float

    def __str__(self) -> str:
        return f"{self.name:<44} {self.files_per_second:>8.0f} files/s   {self.ratio:>5.2f} x the time of load_text"


def _ours(text: str) -> None:
    loaded = load_text(text, today=TODAY)
    assert not loaded.problems, [str(problem) for problem in loaded.problems]


def _raw(text: str) -> None:
    json.dumps(yaml.load(text, Loader=yaml.CSafeLoader))


def _usual(text: str) -> None:
    PipelineFile.model_validate(yaml.safe_load(text))


def _measure(read: Callable[[str], None], texts: list[str]) -> float:
    """Seconds of this process for one file, the best of some repeats."""
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        for text in texts:
            read(text)
        best = min(best, time.process_time() - began)
    return best / len(texts)


def run() -> list[Row]:
    texts = [_TEXT.format(n=n, minute=n % 60) for n in range(FILES)]
    ours = _measure(_ours, texts)
    peers = {"CSafeLoader and json alone": _raw, "safe_load and plain pydantic": _usual}
    rows = [Row("load_text: located, checked, linted", 1 / ours, 1.0)]
    for name, read in peers.items():
        taken = _measure(read, texts)
        rows.append(Row(name, 1 / taken, taken / ours))
    return rows


def main() -> None:
    for row in run():
        print(row)


if __name__ == "__main__":
    main()
