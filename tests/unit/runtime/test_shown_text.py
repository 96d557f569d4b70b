"""Text from outside on a terminal."""

import pytest

from worker.runtime.shown_text import one_line, visible


def test_a_control_character_is_shown_and_does_nothing() -> None:
    assert visible("red: \x1b[31m, bell: \x07") == "red: \\x1b[31m, bell: \\x07"


def test_printable_text_is_shown_as_it_is() -> None:
    assert visible("naïve → 日本\n") == "naïve → 日本\n"


def test_a_text_of_several_lines_becomes_one() -> None:
    assert one_line("first\r\nsecond\n\tthird", 100) == "first second third"


@pytest.mark.parametrize("text", ["x" * 101, "x" * 1_000_000, "\x1b" * 60])
def test_a_cut_text_says_so_and_keeps_to_its_length(text: str) -> None:
    shown = one_line(text, 100)

    assert len(shown) <= 100
    assert shown.endswith(f"… (cut, {len(text):,} characters)")
    assert shown.isprintable()


def test_a_text_that_fits_is_not_cut() -> None:
    assert one_line("x" * 100, 100) == "x" * 100
