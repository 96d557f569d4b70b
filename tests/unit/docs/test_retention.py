"""The page about retention says what the program does."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from worker.store import retention

PAGE = (Path(__file__).parents[3] / "docs" / "retention.md").read_text()
LIFETIMES = {name: value for name, value in vars(retention).items() if isinstance(value, timedelta)}
UNITS = {"hour": timedelta(hours=1), "hours": timedelta(hours=1), "day": timedelta(days=1), "days": timedelta(days=1)}


def stated(page: str, name: str) -> set[timedelta]:
    """Every lifetime the page gives under a name, as in `400 days (`RUNS`)`."""
    found = re.findall(rf"(\d+) (hours?|days?) \(`{name}`\)", page)
    return {int(number) * UNITS[unit] for number, unit in found}


@pytest.mark.parametrize("name", LIFETIMES)
def test_each_lifetime_is_stated_as_it_is(name: str) -> None:
    assert stated(PAGE, name) == {LIFETIMES[name]}


def test_no_lifetime_is_stated_that_does_not_exist() -> None:
    assert set(re.findall(r"\(`([A-Z_]+)`\)", PAGE)) == set(LIFETIMES)
