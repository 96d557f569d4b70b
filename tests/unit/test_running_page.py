"""The page about running a worker says what the program reads and logs."""

import re
from pathlib import Path

from worker import settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
SOURCES = [path for package in ("worker", "consumers") for path in sorted((ROOT / package).rglob("*.py"))]
LOUD = re.compile(r'_log\.(?:error|exception)\(\s*"([a-z_.]+)"')


def test_everything_that_needs_a_person_is_on_the_page_with_what_to_do() -> None:
    logged = {name for path in SOURCES for name in LOUD.findall(path.read_text(encoding="utf-8"))}

    rows = re.findall(r"^\| `([a-z_.]+)` \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert set(rows) == logged
    assert "record.parked" in logged


def test_the_settings_of_the_page_are_those_that_are_read() -> None:
    read = {value for value in vars(settings).values() if isinstance(value, str) and value.startswith("INTERLOCK_")}

    assert set(re.findall(r"^\| `(INTERLOCK_[A-Z_]+)` \|", PAGE, re.MULTILINE)) == read
