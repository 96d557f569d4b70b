"""Loading a calendar file: what it becomes, and where it is wrong."""

from datetime import date

import pytest

from worker.config.load import load_calendar_text
from worker.core.model.calendars import Calendar


def test_a_calendar_file_gives_weekdays_and_dates_with_their_names() -> None:
    text = "name: us\ndescription: d\ndays: [Sat, sunday]\ndates: [2026-12-25, {date: 2026-07-04, name: Fourth}]\n"

    calendar, problems = load_calendar_text(text)

    assert problems == ()
    assert calendar == Calendar(
        name="us", weekdays=frozenset({5, 6}), dates={date(2026, 12, 25): "", date(2026, 7, 4): "Fourth"}
    )


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("dates: []", "name"),
        ("name: a\ndates: [x]", "dates[0]"),
        ("name: a\ndates: [{name: x}]", "dates[0]"),
        ("name: a\ndays: [x]", "days[0]"),
        ("name: a\nfoo: 1", "foo"),
        ("[", ""),
    ],
)
def test_a_bad_calendar_is_refused_with_its_place(text: str, path: str) -> None:
    calendar, problems = load_calendar_text(text)

    assert calendar is None
    assert [problem.path for problem in problems] == [path]
