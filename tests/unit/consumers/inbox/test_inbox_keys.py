"""Patterns of object keys: what matches, what it tells, and that no key takes long."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from consumers.inbox.key_patterns import BadKeyPattern, parse_key_pattern


@pytest.mark.parametrize(
    ("pattern", "key", "told"),
    [
        ("orders/a.csv", "orders/a.csv", {}),
        ("orders/*.csv", "orders/.csv", {}),
        ("orders/*.csv", "orders/a.csv.csv", {}),
        ("orders/*.csv", "orders/x/a.csv", None),
        ("orders/**", "orders/x/y/a.csv", {}),
        ("**/*.csv", "x/y/a.csv", {}),
        ("**/a*/b", "x/a1/c/a2/b", {}),
        ("orders/dt=${date}/${part}.csv", "orders/dt=2026-03-03/7.csv", {"date": "2026-03-03", "part": "7"}),
        ("orders/dt=${date}/${part}.csv", "orders/dt=20260303/7.csv", {"date": "20260303", "part": "7"}),
        ("orders/dt=${date}/${part}.csv", "orders/dt=2026-3-3/7.csv", None),
        ("orders/dt=${date}/${part}.csv", "orders/dt=20260303/.csv", None),
        ("${a}-${b}.csv", "x-y-z.csv", {"a": "x", "b": "y-z"}),
        ("x*ab/c", "xab-ab/c", {}),
        ("y=${year}/m=${month}/h=${hour}", "y=2026/m=03/h=07", {"year": "2026", "month": "03", "hour": "07"}),
        ("${period}.csv", "2026-03-03T0730.csv", {"period": "2026-03-03T0730"}),
        ("${period}.csv", "20260303T07.csv", {"period": "20260303T07"}),
        ("a.b", "axb", None),
        ("cost$.csv", "cost$.csv", {}),
        ("**", "line\nbreak", {}),
    ],
)
def test_a_key_matches_as_a_whole_and_tells_what_stands_at_the_names(
    pattern: str, key: str, told: dict[str, str] | None
) -> None:
    assert parse_key_pattern(pattern).find(key) == told


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("", "1 to 1024"),
        ("a" * 1025, "1 to 1024"),
        ("**/x/**", "twice"),
        ("${a}/${a}", "twice"),
        ("*${a}", "side by side"),
        ("${}", "is no name"),
        ("${a b}", "is no name"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(BadKeyPattern, match=problem):
        parse_key_pattern(pattern)


PIECES = st.lists(st.sampled_from(["a", "b", "/", "*", "${n}", "${day}", "1"]), min_size=1, max_size=6).map("".join)
KEYS = st.text(alphabet="ab/1", max_size=10)


def by_backtracking(pattern: str) -> re.Pattern[str]:
    """The same language said in the plainest way."""
    words = {r"\*\*": ".*", r"\*": "[^/]*", r"\$\{n\}": "[^/]+", r"\$\{day\}": "[0-9]{2}"}
    plain = re.escape(pattern)
    for word, meaning in words.items():
        plain = plain.replace(word, meaning)
    return re.compile(plain)


@given(PIECES, KEYS)
@example("*a/*b", "ba/ab")
@example("**a*/1", "a/a/1")
def test_taking_little_and_never_asking_again_loses_no_match(pattern: str, key: str) -> None:
    try:
        parsed = parse_key_pattern(pattern)
    except BadKeyPattern:
        return

    assert (parsed.find(key) is not None) == (by_backtracking(pattern).fullmatch(key) is not None)


@given(PIECES, KEYS, KEYS)
def test_a_beginning_of_a_key_that_matches_is_always_seen_as_possible(pattern: str, first: str, rest: str) -> None:
    try:
        parsed = parse_key_pattern(pattern)
    except BadKeyPattern:
        return

    if parsed.find(first + rest) is not None:
        assert parsed.may_begin(first)


@pytest.mark.parametrize(
    ("pattern", "beginning", "may"),
    [
        ("orders/${date}/*", "orders/", True),
        ("orders/${date}/*", "orders/2026-03", True),
        ("orders/${date}/*", "orders/curated/", False),
        ("orders/${date}/*", "orders/2026-03-03/x/", False),
        ("**", "anything/", True),
        ("**/x", "anything/", True),
        ("a*", "a/b", False),
        ("${part}", "", True),
        ("abc", "abcd", False),
    ],
)
def test_it_can_be_asked_which_beginnings_are_possible(pattern: str, beginning: str, *, may: bool) -> None:
    assert parse_key_pattern(pattern).may_begin(beginning) is may


def test_a_hostile_key_takes_no_time() -> None:
    """With backtracking this would outlast us all; the limit of a test would end it."""
    pattern = parse_key_pattern("*a*a*a*a*a*a*a*a*a*a*a*a*b")

    assert pattern.find("a" * 1024) is None
    assert parse_key_pattern("**/a*a*a*a*b").find("/a" * 512) is None
