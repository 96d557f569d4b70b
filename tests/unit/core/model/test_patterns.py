"""Patterns: the accepted part of regular expressions, held against the standard library, and what it costs."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.core.model.pattern_syntax import GROUP_DEPTH_MAX, PATTERN_CHARS_MAX, REPEATS_MAX, BadPattern
from worker.core.model.patterns import JUMPS_MAX, PARTS_MAX, STATES_MAX, TEXT_CHARS_MAX, compile_pattern

ALPHABET = "ab0_-.\n é"


def matches_in_library(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text, re.ASCII) is not None


literals = st.sampled_from(["a", "b", "0", "_", "-", "é", " ", r"\.", r"\n", r"\-", r"\\", r"\|", r"\$"])
classes = st.sampled_from([".", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S"])
set_members = st.sampled_from(["a", "b", "0-9", "a-é", r"\d", r"\W", r"\]", r"\n", ".", "*", "$", "^", "_"])


def write_set(negation: str, members: list[str], dash: str) -> str:
    return f"[{negation}{''.join(members)}{dash}]"


sets = st.builds(
    write_set,
    st.sampled_from(["", "^"]),
    st.lists(set_members, min_size=1, max_size=3).filter(lambda members: members[0] != "^"),
    st.sampled_from(["", "-"]),
)
repetitions = st.sampled_from(["*", "+", "?", "{0}", "{2}", "{1,}", "{0,2}", "{1,3}"])


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.builds("{}{})".format, st.sampled_from(["(", "(?:"]), inner)
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("{}|{}".format, inner, inner),
        groups,
        st.builds("{}{}".format, st.one_of(literals, classes, sets, groups), repetitions),
    )


patterns = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "^"]),
    st.recursive(st.one_of(literals, classes, sets, st.just("()")), larger, max_leaves=8),
    st.sampled_from(["", "$"]),
).filter(lambda pattern: len(pattern) <= PATTERN_CHARS_MAX)


@settings(deadline=None, max_examples=200)
@given(patterns, st.lists(st.text(ALPHABET, max_size=8), min_size=1, max_size=6))
def test_the_verdict_is_that_of_the_standard_library(pattern: str, texts: list[str]) -> None:
    compiled = compile_pattern(pattern)

    assert [compiled.matches(text) for text in texts] == [matches_in_library(pattern, text) for text in texts]


@settings(deadline=None)
@given(patterns, st.data())
def test_a_text_made_from_the_pattern_matches_it(pattern: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True))

    assert compile_pattern(pattern).matches(text)


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("", "", True),
        ("", "a", False),
        ("abc", "abc", True),
        ("abc", "xabcx", False),
        (r"^part-\d{5}\.(csv|parquet)$", "part-00042.parquet", True),
        (r"^part-\d{5}\.(csv|parquet)$", "part-0042.parquet", False),
        ("a.c", "a\nc", False),
        (r"\d+", "١٢", False),
        (r"\w+", "été", False),
        (r"[^\d]", "\U0001f600", True),
        (r"[a\-z]", "-", True),
        (r"[a\-z]", "m", False),
        ("a$", "a\n", False),
        (r"a\$", "a$", True),
        ("(a?){3}", "aa", True),
        ("(a*)*", "aaaa", True),
        ("(|a)+", "", True),
        ("(a{2,3}){2}", "aaaaaaa", False),
    ],
)
def test_a_pattern_describes_the_whole_text(pattern: str, text: str, matches: bool) -> None:
    assert compile_pattern(pattern).matches(text) is matches


@pytest.mark.parametrize(
    ("pattern", "position", "problem"),
    [
        ("a**", 2, "a repetition cannot follow another"),
        (".*?b", 2, "lazy and possessive"),
        ("*a", 0, "`*` has nothing to repeat"),
        ("a|+", 2, "`+` has nothing to repeat"),
        ("a(b", 1, "this group is never closed"),
        ("a(b$", 1, "this group is never closed"),
        ("ab)", 2, "closes nothing"),
        ("a[bc", 1, "this set is never closed"),
        ("a[]", 1, "this set is empty"),
        ("[]a]", 0, "this set is empty"),
        ("[z-a]", 1, "a range goes from one character up to another"),
        (r"[\d-z]", 1, "a range goes from one character up to another"),
        (r"[a-\w]", 1, "a range goes from one character up to another"),
        ("a^b", 1, "`^` is allowed at the start only"),
        ("(^a)", 1, "`^` is allowed at the start only"),
        ("a$b", 1, "`$` is allowed at the end only"),
        ("(a$)", 2, "`$` is allowed at the end only"),
        ("(?=a)", 0, "look-around"),
        ("(?P<n>a)", 0, "look-around"),
        ("(?i)a", 0, "look-around"),
        (r"(a)\1", 3, r"`\1` is not an escape"),
        (r"\bword\b", 0, r"`\b` is not an escape"),
        (r"\x41", 0, r"`\x` is not an escape"),
        ("a\\", 1, "escapes nothing"),
        ("a{", 1, "starts a count"),
        ("a{x}", 1, "starts a count"),
        ("a{,3}", 1, "starts a count"),
        ("a{3,2}", 1, "the count ends (2) before it starts (3)"),
        (f"a{{{REPEATS_MAX + 1}}}", 1, f"at most {REPEATS_MAX} repetitions"),
        ("a{" + "9" * 200 + "}", 1, f"at most {REPEATS_MAX} repetitions"),
        ("(" * (GROUP_DEPTH_MAX + 1), GROUP_DEPTH_MAX, "nested more than"),
        ("a" * (PATTERN_CHARS_MAX + 1), PATTERN_CHARS_MAX, "at most 256 are read"),
    ],
)
def test_what_is_not_accepted_is_refused_with_its_place(pattern: str, position: int, problem: str) -> None:
    with pytest.raises(BadPattern) as refused:
        compile_pattern(pattern)

    assert refused.value.position == position
    assert problem in refused.value.problem
    assert f"character {position + 1}: " in str(refused.value)
    assert "accepted are" in str(refused.value)


@pytest.mark.parametrize(
    "pattern",
    ["(a{50}){50}", "(((){1000}){1000}){1000}", "((a?){1000}){1000}", "((|){1000}){1000}", "(.{90}){30}", "(ab){400}"],
)
def test_counts_that_multiply_are_refused_at_the_bounds_on_states_and_parts(pattern: str) -> None:
    with pytest.raises(BadPattern, match=f"more than ({STATES_MAX} states|{PARTS_MAX} parts)"):
        compile_pattern(pattern)


@settings(deadline=None)
@given(st.text(alphabet=r"ab[](){}|*+?^$\.-,019:d", max_size=30))
def test_any_text_is_a_pattern_or_refused_with_a_place_inside_it(text: str) -> None:
    place = None
    try:
        compile_pattern(text).matches("ab01")
    except BadPattern as refused:
        place = refused.position

    assert place is None or 0 <= place <= len(text)


# Each of these makes a backtracking matcher try exponentially or polynomially many ways before it gives up.
BOMBS = ["(a|a)*b", "(a*)*b", "(a|aa)+b", "(a?){40}a{40}b", "(.*)(.*)(.*)(.*)b", "([a-z]+)*b", "a*a*a*a*a*a*b"]


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_costs_at_most_states_times_characters(bomb: str) -> None:
    pattern = compile_pattern(bomb)
    before = pattern.steps
    text = "a" * TEXT_CHARS_MAX

    assert not pattern.matches(text)

    states_max = 2 * 40 + 1
    assert pattern.steps - before <= states_max * (len(text) + 1)


# Of each, the last of many characters decides, so that no memory of moves helps.
WIDE = [
    ".*a.{1000}.{900}",
    "(.*a|.*b|.*aa)*b.{500}",
    "(a|b)*a(.?){999}(.?){900}",
    ".*a(b?.){40}.{900}",
    ".*a.{0,999}b.{0,900}",
]


@pytest.mark.parametrize("pattern", WIDE)
@pytest.mark.parametrize("alphabet", ["ab", "".join(map(chr, range(0x61, 0x61 + 3000)))])
def test_the_widest_patterns_cost_what_their_branches_do_and_not_what_their_states_do(
    pattern: str, alphabet: str
) -> None:
    compiled, rng = compile_pattern(pattern), random.Random(pattern)
    text = "".join(rng.choice(alphabet) for _ in range(TEXT_CHARS_MAX))
    before = compiled.steps

    compiled.matches(text)

    assert compiled.steps - before <= compiled.steps_max(text) <= TEXT_CHARS_MAX * (JUMPS_MAX + 4 + 8)
    assert compiled.compile_steps <= 50 * 250


@pytest.mark.parametrize("pattern", [f"(a?b){{{JUMPS_MAX + 5}}}", ".*" * (JUMPS_MAX + 3), "(" + "a?b?" * 15 + "){5}"])
def test_a_pattern_that_branches_too_often_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern, match=f"it branches at more than {JUMPS_MAX} places; use fewer optional parts"):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(" + "|".join(f"table{number}" for number in range(28)) + r")-\d{4}-\d\d-\d\d\.(csv|parquet)(\.gz)?",
        r"(\w+=[^;]*;?){0,20}",
        r"s3://[a-z0-9.-]{3,63}/([^/]+/)*part-\d{5}(-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?\.c000\.snappy\.parquet",
        r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)",
        "(a?){999}(b?){999}",
    ],
)
def test_what_people_write_branches_little(pattern: str) -> None:
    assert compile_pattern(pattern).steps_max("x") < 45


def test_moves_that_no_longer_fit_the_memory_are_computed_again_with_the_same_verdict() -> None:
    # The last twelve characters decide, so a table of all sets of states would have 4096 rows.
    pattern = compile_pattern("(a|b)*a(a|b){11}")
    text = "".join("ab"[number >> bit & 1] for number in range(300) for bit in range(12))

    for end in range(len(text) - 40, len(text)):
        assert pattern.matches(text[:end]) is (text[end - 12] == "a")
    assert pattern.steps <= 30 * sum(range(len(text) - 40, len(text)))


def test_a_text_over_the_bound_does_not_match() -> None:
    assert compile_pattern("a*").matches("a" * TEXT_CHARS_MAX)
    assert not compile_pattern("a*").matches("a" * (TEXT_CHARS_MAX + 1))


def test_the_largest_pattern_of_optional_parts_stays_usable() -> None:
    pattern = compile_pattern("(a?){999}(b?){999}")

    assert pattern.matches("a" * 999 + "b" * 999)
    assert not pattern.matches("a" * 1000)
