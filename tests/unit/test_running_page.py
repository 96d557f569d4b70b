"""The page about running a worker says what the program reads."""

import re
from pathlib import Path

from worker.config import settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")


def test_the_settings_of_the_page_are_those_that_are_read() -> None:
    read = {value for value in vars(settings).values() if isinstance(value, str) and value.startswith("INTERLOCK_")}
    read -= {settings.PREFIX}

    assert read == set(settings.NAMES)
    assert set(re.findall(r"^\| `(INTERLOCK_[A-Z_]+)` \|", PAGE, re.MULTILINE)) == read
