"""The wording stays plain: old private terms do not come back, and docstrings begin with a short contract.

The terms and the register are described in `CONTRIBUTING.md` and `docs/glossary.md`.
"""

import ast
import re
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    page
    for page in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("deploy/**/*.md"),
    ]
)
MODULES = sorted(path for package in ("worker", "consumers", "scheduler") for path in (ROOT / package).rglob("*.py"))
CONTRACT_MAX = 100

# What must not come back, with what to write instead. Names of log events, rows and settings are contracts and stay.
OLD = {
    r"\bwhoever\b": "name the actor: the worker, the producer, you",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\banew\b": "again",
    r"\bwhat becomes of\b": "what happens to, or the noun",
    r"\brehears(e|ed|al|als)\b": "dry run",
    r"\bthe reference('s)?\b": "the Lambda edition",
    r"\bchores?\b": "periodic task",
    r"\bstray(s)?\b": "dead letter",
}


def prose_of(page: str) -> str:
    """Return a page without its code: fenced blocks, inline code and link targets."""
    text = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    return re.sub(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->", "", text, flags=re.DOTALL)


def prose_in(source: str) -> str:
    """Return the docstrings and comments of a module, without inline code."""
    docstrings = [text for text, _ in _docstrings(ast.parse(source))]
    comments = [
        token.string for token in tokenize.generate_tokens(StringIO(source).readline) if token.type == tokenize.COMMENT
    ]
    return re.sub(r"`[^`]*`", "", "\n".join([*docstrings, *comments]))


def _docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text, getattr(node, "name", "the module")


def old_wording(prose: str) -> list[str]:
    return [
        f"{found.group(0)!r}: {instead}"
        for term, instead in OLD.items()
        for found in re.finditer(term, prose, re.IGNORECASE)
    ]


def long_contracts(source: str) -> list[str]:
    return [name for text, name in _docstrings(ast.parse(source)) if len(text.splitlines()[0]) > CONTRACT_MAX]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_keeps_to_the_terms(page: Path) -> None:
    assert old_wording(prose_of(page.read_text(encoding="utf-8"))) == []


def test_comments_and_docstrings_keep_to_the_terms() -> None:
    found = {str(path.relative_to(ROOT)): old_wording(prose_in(path.read_text(encoding="utf-8"))) for path in MODULES}

    assert {path: words for path, words in found.items() if words} == {}


def test_a_docstring_begins_with_a_contract_that_fits_a_line() -> None:
    found = {str(path.relative_to(ROOT)): long_contracts(path.read_text(encoding="utf-8")) for path in MODULES}

    assert {path: names for path, names in found.items() if names} == {}


def test_the_check_sees_old_wording_and_long_contracts() -> None:
    assert old_wording(prose_of("Whoever mends it asks the reference.")) != []
    assert old_wording(prose_of("`whoever` is code, and a letter of the alphabet is none of ours.")) == []
    assert len(old_wording(prose_in('"""A rehearsal."""\nx = 1  # made anew\n'))) == 2
    assert long_contracts(f'"""{"x" * 101}"""') == ["the module"]
    assert long_contracts(f'"""{"x" * 100}"""') == []
