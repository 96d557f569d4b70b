"""The tables of docs/reference/json-records.md: every record that commands print with --json.

`python -m tests.support.pages.record_reference` updates the page; a test fails while it is outdated.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.support.pages.record_meanings import RECORDS, Record

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "json-records.md"
_TABLES: Final = re.compile(r"(?P<begin><!-- records -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def with_fresh_tables(page: str) -> str:
    text = "\n".join(_tables())
    return _TABLES.sub(lambda found: f"{found['begin']}{text}\n{found['end']}", page)


def _tables() -> Iterator[str]:
    for commands, records in groupby(RECORDS, key=lambda record: record.commands):
        yield from (f"## {', '.join(f'`{command}`' for command in commands)}", "")
        for record in records:
            yield from _table(record)


def _table(record: Record) -> Iterator[str]:
    yield from (f"`{record.type}`: {record.about}.", "", "| Field | Meaning |", "| --- | --- |")
    yield from (f"| `{name}` | {meaning} |" for name, meaning in record.fields.items())
    yield ""


if __name__ == "__main__":
    PAGE.write_text(with_fresh_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
