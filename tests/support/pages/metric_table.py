"""The table of docs/reference/metrics.md, made from the code.

`python -m tests.support.pages.metric_table` updates the page; a test fails while it is outdated.
"""

import re
from pathlib import Path
from typing import Final

from worker.telemetry.meters import Metric
from worker.telemetry.prometheus import name_of

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
_TABLE: Final = re.compile(r"(?P<begin><!-- metrics -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def with_fresh_table(page: str) -> str:
    return _TABLE.sub(lambda found: f"{found['begin']}{table()}{found['end']}", page)


def table() -> str:
    head = [
        "| CloudWatch | Prometheus and OTLP | Type | Unit | Labels | Meaning |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *map(_row, Metric), ""])


def _row(metric: Metric) -> str:
    meaning = metric.meaning
    labels = f"`of`: {meaning.label}" if meaning.label else ", ".join(f"`{name}`" for name in meaning.labels)
    return (
        f"| `{metric.value}` | `{name_of(metric)}` | {meaning.kind.value} | {meaning.unit.value.lower()} | "
        f"{labels} | {meaning.text} |"
    )


if __name__ == "__main__":
    PAGE.write_text(with_fresh_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
