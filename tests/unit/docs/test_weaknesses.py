"""The page about the reference's weaknesses is complete, and what it names as proof exists."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "weaknesses.md").read_text(encoding="utf-8")
NUMBERS = range(1, 68)
# The parts that are not built yet, as the page introduces them.
PARTS = re.findall(r"^\* \*([a-z ]+)\*: ", PAGE, re.MULTILINE)


def rows(page: str) -> list[tuple[int, str]]:
    """The numbered rows of the page's tables: the number, and the cell that says how we know."""
    found: list[tuple[int, str]] = []
    for line in page.splitlines():
        if re.match(r"\| *\d+ *\|", line):
            number, *_, evidence = (cell.strip() for cell in line.strip("|").split(" | "))
            found.append((int(number), evidence))
    return found


def named_tests(text: str) -> list[str]:
    return re.findall(r"`(tests/[\w/]+\.py::[\w:]+)`", text)


def named_modules(text: str) -> list[str]:
    return re.findall(r"`((?:worker|consumers|scheduler)/[\w/]+\.py)`", text)


def open_parts(text: str) -> list[str]:
    """What a row says is still to be shown, each part by its name."""
    return [part for said in re.findall(r"\*\*open\*\* \(([^)]+)\)", text) for part in said.split(", ")]


@cache
def defined_in(file: str) -> frozenset[str]:
    """Every test of a file as pytest names it; those in a class with the class."""
    path = ROOT / file
    return frozenset(_tests(ast.parse(path.read_text(encoding="utf-8")), "")) if path.is_file() else frozenset()


def _tests(body: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for node in body.body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield prefix + node.name


def missing(names: list[str]) -> list[str]:
    return [name for name in names if name.partition("::")[2] not in defined_in(name.partition("::")[0])]


ROWS: Mapping[int, str] = dict(rows(PAGE))


def test_every_weakness_has_exactly_one_row() -> None:
    assert [number for number, _ in rows(PAGE)] == list(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_row_says_how_we_know_or_what_is_open(number: int) -> None:
    evidence = ROWS[number]

    assert named_tests(evidence) or named_modules(evidence) or open_parts(evidence)


def test_every_test_the_page_names_exists() -> None:
    assert missing(named_tests(PAGE)) == []


def test_no_test_is_named_in_a_way_that_is_not_looked_at() -> None:
    assert PAGE.count("::test_") == len(named_tests(PAGE))


def test_every_module_the_page_names_exists() -> None:
    assert [module for module in named_modules(PAGE) if not (ROOT / module).is_file()] == []


def test_what_is_open_belongs_to_a_part_that_the_page_introduces() -> None:
    assert PAGE.count("**open**") == len(re.findall(r"\*\*open\*\* \(", PAGE))
    assert set(open_parts(PAGE)) == set(PARTS)


def test_a_test_that_does_not_exist_is_noticed() -> None:
    here = "tests/unit/docs/test_weaknesses.py"
    real, gone, elsewhere = (
        f"{here}::{test_a_test_that_does_not_exist_is_noticed.__name__}",
        f"{here}::test_x",
        "tests/no.py::test_x",
    )

    assert missing([real, gone, elsewhere, f"{here}::rows"]) == [gone, elsewhere, f"{here}::rows"]
    assert "TestWhatOthersReport::test_a_permanent_failure_is_charged_to_the_code_budget" in defined_in(
        "tests/unit/core/run/test_run_jobs.py"
    )


def test_a_row_that_is_twice_or_not_there_is_noticed() -> None:
    page = "| 1 | a | b | `worker/x.py` |\n| 1 | a | b | c |\n| x | y | z |\n"

    assert rows(page) == [(1, "`worker/x.py`"), (1, "c")]
