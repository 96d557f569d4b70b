"""What reaches a terminal, a pipe and a program."""

import io
import json
from datetime import UTC, datetime, timedelta

from rich.console import Console

from worker.cli.terminal.console import (
    Screen,
    aligned,
    counted,
    shown_time,
    without_empty_columns,
)


def a_screen(*, terminal: bool) -> tuple[Screen, io.StringIO]:
    file = io.StringIO()
    colours = "standard" if terminal else "auto"  # as rich decides by itself on a real pipe
    console = Console(file=file, force_terminal=terminal, width=60, color_system=colours, markup=False, highlight=False)
    return Screen(out=console, err=console), file


def test_a_pipe_gets_no_control_characters_and_no_wrapped_lines() -> None:
    screen, file = a_screen(terminal=False)

    screen.line("x" * 200, style="red")
    screen.table([["a", "", "b" * 100]], styles=["green"])

    assert file.getvalue() == "x" * 200 + "\n" + "  a  " + "b" * 100 + "\n"


def test_a_terminal_gets_colour() -> None:
    screen, file = a_screen(terminal=True)

    screen.line("careful", style="red")
    screen.table([["one", "two"]], styles=["green"])

    assert "\x1b[31mcareful" in file.getvalue()
    assert "\x1b[32m" in file.getvalue().splitlines()[1]


def test_a_sentence_on_a_line_of_its_own_stands_further_in_than_what_it_belongs_to() -> None:
    screen, file = a_screen(terminal=True)

    screen.table([["a" * 30, "a sentence that is too long to stand beside it"]], indent=0)

    assert [line.index("a") for line in file.getvalue().splitlines()] == [0, 2]


def test_what_is_short_enough_stands_beside_what_it_belongs_to() -> None:
    screen, file = a_screen(terminal=True)

    screen.table([["a" * 30, "short"]], indent=0)

    assert file.getvalue() == "a" * 30 + "  short\n"


def test_times_in_a_column_are_of_one_width() -> None:
    noon = datetime(2027, 3, 22, 12, tzinfo=UTC)

    assert shown_time(noon) == "2027-03-22T12:00:00.000Z"
    assert shown_time(noon + timedelta(microseconds=971_386)) == "2027-03-22T12:00:00.971Z"


def test_text_from_files_is_neither_markup_nor_terminal_commands() -> None:
    screen, file = a_screen(terminal=True)

    screen.line("[bold]rules[2][/bold] \x1b[2J\x07")

    assert file.getvalue() == "[bold]rules[2][/bold] \\x1b[2J\\x07\n"


def test_a_record_is_one_line_of_json_whatever_the_text() -> None:
    screen, file = a_screen(terminal=False)

    screen.record({"message": "two\nlines, [markup], ümlaut"})

    assert file.getvalue().count("\n") == 1
    assert json.loads(file.getvalue()) == {"message": "two\nlines, [markup], ümlaut"}


def test_columns_are_aligned_and_lines_end_without_blanks() -> None:
    assert list(aligned([["a", "long", ""], ["bbb", "c", "d"]])) == ["a    long", "bbb  c     d"]


def test_a_column_that_is_empty_everywhere_takes_no_room() -> None:
    assert without_empty_columns([["a", "", "b"], ["c", "", ""]]) == [["a", "b"], ["c", ""]]
    assert without_empty_columns([]) == []


def test_a_number_agrees_with_its_noun() -> None:
    assert [counted(number, "file") for number in (0, 1, 1000)] == ["0 files", "1 file", "1,000 files"]
