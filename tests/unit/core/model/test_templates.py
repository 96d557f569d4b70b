"""Variables in the texts of a job."""

import pytest

from worker.core.model.templates import VARIABLES, names, render, unclosed_names, unknown_names

VALUES = {name: f"<{name}>" for name in VARIABLES}


@pytest.mark.parametrize("name", VARIABLES)
def test_every_variable_is_filled_in(name: str) -> None:
    assert render(f"s3://b/${{{name}}}/x", VALUES) == f"s3://b/<{name}>/x"


def test_an_escaped_brace_is_literal() -> None:
    assert render("$${DATE} and ${DATE}", VALUES) == "${DATE} and <DATE>"


@pytest.mark.parametrize("text", ["$5", "$", "$$", "cost $DATE", "a$b{c}", "{DATE}"])
def test_any_other_dollar_is_itself(text: str) -> None:
    assert render(text, VALUES) == text


def test_a_value_is_not_looked_at_again() -> None:
    assert render("${DATE}", {"DATE": "${HOUR}$${", "HOUR": "no"}) == "${HOUR}$${"


@pytest.mark.parametrize("text", ["${INTERLOCK_TOKEN}", "Bearer $INTERLOCK_TOKEN", "$${INTERLOCK_TOKEN}"])
def test_secrets_are_left_for_the_step_that_holds_them(text: str) -> None:
    assert render(text, VALUES) == text
    assert unknown_names(text) == []


def test_a_name_without_a_value_stays_as_it_was_written() -> None:
    assert render("${RUN_ID}", {}) == "${RUN_ID}"


def test_names_are_given_in_order_without_escaped_ones_and_secrets() -> None:
    assert list(names("${HOUR} $${DATE} ${INTERLOCK_X} ${nope} ${HOUR}")) == ["HOUR", "nope", "HOUR"]


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("${DATE}", []),
        ("${date}", ["date"]),
        ("${}", [""]),
        ("${ DATE }", [" DATE "]),
        ("${DATE", []),
        ("${environment}-${PIPELINE}", ["environment"]),
    ],
)
def test_names_that_stand_for_nothing_are_found(text: str, unknown: list[str]) -> None:
    assert unknown_names(text) == unknown


@pytest.mark.parametrize(
    ("text", "unclosed"), [("${DATE", ["DATE"]), ("$${DATE", []), ("${a${DATE}", ["a$"]), ("${DATE} ${HOUR}", [])]
)
def test_names_that_are_never_closed_are_found(text: str, unclosed: list[str]) -> None:
    assert unclosed_names(text) == unclosed
