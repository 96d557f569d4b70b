"""The reference page of the HTTP API is that of the program."""

from tests.support.pages.api_reference import PAGE, with_fresh_parts
from worker.web.problems import ProblemType


def test_the_reference_is_that_of_the_program() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert "| `GET /runs` |" in page
    assert page == with_fresh_parts(page), "run `python -m tests.support.pages.api_reference`"


def test_every_type_of_problem_is_listed() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert [kind for kind in ProblemType if f"| `{kind.value.slug}` |" not in page] == []
