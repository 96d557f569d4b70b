"""Cron text: what is understood, and how a refusal helps."""

import re
from pathlib import Path

import pytest

from worker.config.cron_text import NICKNAMES, TEXT_MAX, BadCron, parse_cron
from worker.core.time.cron import LAST


def test_fields_are_expanded() -> None:
    cron = parse_cron("*/20 8-10 1,15 jan-mar mon-fri")

    assert cron.minutes == (0, 20, 40)
    assert cron.hours == (8, 9, 10)
    assert cron.days == {1, 15}
    assert cron.months == {1, 2, 3}
    assert cron.weekdays == {1, 2, 3, 4, 5}
    assert cron.text == "*/20 8-10 1,15 jan-mar mon-fri"


def test_a_star_does_not_restrict() -> None:
    cron = parse_cron("* * * * *")

    assert (cron.days, cron.weekdays) == (None, None)
    assert (len(cron.minutes), len(cron.hours), len(cron.months)) == (60, 24, 12)


def test_a_range_of_one_is_that_one() -> None:
    cron = parse_cron("5-5 3,4-4/2 7-7 feb-feb 1-1")

    assert (cron.minutes, cron.hours, cron.days, cron.months, cron.weekdays) == ((5,), (3, 4), {7}, {2}, {1})


def test_steps_from_the_highest_are_that_one() -> None:
    cron = parse_cron("59/5 1,23/2 31/2 dec/3 6/2")

    assert (cron.minutes, cron.hours, cron.days, cron.months, cron.weekdays) == ((59,), (1, 23), {31}, {12}, {6})


def test_a_range_may_go_around() -> None:
    assert parse_cron("0 22-2 * * *").hours == (0, 1, 2, 22, 23)


def test_every_day_by_number_differs_from_a_star() -> None:
    assert parse_cron("0 0 1-31 * 1").days == frozenset(range(1, 32))
    assert parse_cron("0 0 * * 1").days is None


@pytest.mark.parametrize(
    ("days", "fits_both"),
    [("*/2 * 1", True), ("1 * */2", True), ("1-31 * */2", True), ("1-31/2 * 1", False), ("1-31 * 1", False)],
)
def test_a_star_with_a_step_is_a_star_and_a_range_is_none(days: str, fits_both: bool) -> None:
    assert parse_cron(f"0 0 {days}").must_fit_both is fits_both


@pytest.mark.parametrize("sunday", ["0", "7", "SUN", "sun"])
def test_sunday_has_two_numbers_and_a_name(sunday: str) -> None:
    assert parse_cron(f"0 0 * * {sunday}").weekdays == {0}


def test_the_last_day_and_numbered_weekdays_are_kept_apart_from_plain_ones() -> None:
    last = parse_cron("0 0 1,L * *")
    nth = parse_cron("0 0 * * 5#2,L5")

    assert (last.days, last.last_day) == ({1}, True)
    assert (nth.weekdays, nth.nth_weekdays) == (frozenset(), {(5, 2), (5, LAST)})


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@Weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        (" @yearly ", "0 0 1 1 *"),
    ],
)
def test_the_usual_short_names_are_understood(short: str, long: str) -> None:
    expected = parse_cron(long)
    found = parse_cron(short)

    assert found.text == short
    assert (found.hours, found.days, found.months, found.weekdays) == (
        expected.hours,
        expected.days,
        expected.months,
        expected.weekdays,
    )


@pytest.mark.parametrize(
    ("hours", "follows"),
    [
        ("*", True),
        ("*/2", True),
        ("0-23", True),
        ("0-23/2", True),
        ("0/2", True),
        ("*/2,1-23/2", True),
        ("2", False),
        ("1,2", False),
        ("2-4/2", False),
        ("8-20/2", False),
        ("2/2", False),
        ("*/12,2", False),
        ("2,*/12", False),
        ("*/24", False),
    ],
)
def test_stars_and_steps_of_the_whole_day_follow_the_clock(hours: str, follows: bool) -> None:
    assert parse_cron(f"0 {hours} * * *").follows_clock is follows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("60 * * * *", "minute '60' is not understood; accepted are 0-59"),
        ("0 24 * * *", "hour '24' is not understood; accepted are 0-23"),
        ("0 0 32 * *", "day of month '32' is not understood; accepted are 1-31 or L"),
        ("0 0 15W * *", "day of month '15W' is not understood"),
        ("0 0 * JANUARY *", "month 'JANUARY' is not understood; accepted are 1-12 or JAN-DEC"),
        ("0 0 * * 8", "day of week '8' is not understood; accepted are 0-7"),
        ("0 0 * * 5#6", "day of week '5#6' is not understood"),
        ("0 0 * * 5#2,1", "day of week '5#2,1' is not understood"),
        ("0 0 * * *#2", "day of week '*#2' is not understood"),
        ("H * * * *", "minute 'H' is not understood"),
        ("R(0-5) * * * *", "minute 'R(0-5)' is not understood"),
        ("*/0 * * * *", "minute '*/0' is not understood"),
        ("-1 * * * *", "minute '-1' is not understood"),
        ("٣ * * * *", "minute '٣' is not understood"),
        ("0 8 * *", "has 4 fields; a cron expression has 5: minute, hour, day of month, month, day of week"),
        ("0 8 * * * *", "has 6 fields; a cron expression has 5"),
        ("", "has 0 fields"),
        ("@reboot", "'@reboot' is not known; accepted are @hourly, @daily"),
        ("0," * TEXT_MAX, f"at most {TEXT_MAX} characters"),
    ],
)
def test_a_refusal_names_the_field_and_what_it_accepts(text: str, message: str) -> None:
    with pytest.raises(BadCron) as refused:
        parse_cron(text)

    assert message in str(refused.value)


def test_the_page_names_every_nickname_and_its_other_words_are_understood() -> None:
    page = (Path(__file__).parents[3] / "docs" / "pipeline-file.md").read_text(encoding="utf-8")

    assert set(re.findall(r"`(@[a-z]+)`", page)) == set(NICKNAMES)
    for text in ("*/2 1,15 L JAN MON", "0 0 * 1-5 5#2", "0 0 * * L5", *NICKNAMES):
        parse_cron(text)
