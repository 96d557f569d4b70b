"""The wording stays plain: old private terms do not come back, and docstrings begin with a short contract.

The terms and the register are described in `CONTRIBUTING.md` and `docs/glossary.md`, whose last column lists the words
that headings, help texts and tables do not use for a term.
"""

import ast
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.command_line import loaded_commands
from worker.cli.catalogue import PAGE

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
    # "missed" is a run that does not exist.
    r"\bmiss(ed|es|ing)? (its |a |the |their )?deadlines?\b": "breached deadline",
    r"\bdeadlines?\b[^.,|]{0,40}\bmiss(ed)?\b(?! (run|date))": "breached deadline",
    r"\bmiss(ed)? or met\b": "breached or met",
}


def prose_of(page: str) -> str:
    """Return a page without its code: fenced blocks, inline code and link targets."""
    text = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    if text.startswith("# Glossary"):  # its last column lists words that are not used
        text = re.sub(r"^(\| [^|]+ \| [^|]+ \|)[^|]*\|$", r"\1", text, flags=re.MULTILINE)
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


# --- the terms of the glossary ----------------------------------------------------------------------------------------

GLOSSARY = ROOT / "docs" / "glossary.md"
# Where a word means something else, with the reason.
ALLOWED = {
    ("interlock run", "signal"): "a signal of the operating system, such as SIGTERM",
}


def synonyms(glossary: str) -> dict[str, str]:
    """Return the words that must not stand for a term, each with its term."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", glossary, re.MULTILINE)
    return {word: term for term, words in rows if term not in {"Word", "---"} for word in words.strip().split(", ")}


SYNONYMS = synonyms(GLOSSARY.read_text(encoding="utf-8"))


def private_words(where: str, text: str) -> list[str]:
    """Return the words of a short text that are not those of the glossary."""
    plain = re.sub(r"`[^`]*`", "", text)
    return [
        f"{where}: {found.group(0)!r}: the term is {term!r}"
        for word, term in SYNONYMS.items()
        if (where, word) not in ALLOWED
        for found in re.finditer(_pattern(word), plain, re.IGNORECASE)
    ]


def _pattern(word: str) -> str:
    plural = rf"{word[:-1]}(?:y|ies)" if word.endswith("y") else rf"{word}(?:s|es|ed|d)?"
    return rf"(?<!dead )(?<!dead-)\b{plural}\b"


def headings() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
            yield str(page.relative_to(ROOT)), heading


def help_texts() -> Iterator[tuple[str, str]]:
    """Yield every text of the help pages but examples, with its command or group."""
    yield "interlock", PAGE.introduction
    for panel in PAGE.panels:
        yield "interlock", panel.title
    for name, command in loaded_commands().items():
        yield from _help_of(f"interlock {name}", command)
        for member, leaf in getattr(command, "commands", {}).items():
            yield from _help_of(f"interlock {name} {member}", leaf)


# Typer does not export its types of commands.
def _help_of(path: str, command: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    paragraphs = (command.help or "").split("\n\n")
    yield path, "\n".join(each for each in paragraphs if not each.startswith("\b\nExamples"))
    for param in command.params:
        yield path, f"{getattr(param, 'help', '') or ''}\n{getattr(param, 'metavar', '') or ''}"


def columns() -> Iterator[tuple[str, str]]:
    """Yield the column headings of commands, each a tuple `HEADINGS` of its module."""
    for path in sorted((ROOT / "worker" / "cli").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Tuple(elts=cells)) if name.endswith("HEADINGS"):
                    yield from ((path.stem, str(cell.value)) for cell in cells if isinstance(cell, ast.Constant))
                case _:
                    pass


def found_in(texts: Iterable[tuple[str, str]]) -> list[str]:
    return [problem for where, text in texts for problem in private_words(where, text)]


def test_headings_use_the_terms_of_the_glossary() -> None:
    assert found_in(headings()) == []


def test_help_texts_and_groups_of_commands_use_the_terms_of_the_glossary() -> None:
    assert found_in(help_texts()) == []


def test_columns_of_tables_use_the_terms_of_the_glossary() -> None:
    shown = list(columns())

    assert {where for where, _ in shown} >= {"status_table", "leases", "pipelines", "schedule"}
    assert found_in(shown) == []


def test_the_groups_of_commands_are_the_five_of_the_docs() -> None:
    assert [panel.title for panel in PAGE.panels] == ["Get started", "Configure", "Inspect", "Control", "Operate"]


def test_a_word_that_is_allowed_somewhere_is_there() -> None:
    texts: Mapping[str, str] = {}
    for where, text in help_texts():
        texts = {**texts, where: f"{texts.get(where, '')}\n{text}"}

    assert [word for where, word in ALLOWED if not re.search(_pattern(word), texts[where])] == []


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Which duties a worker has", ["role"]),
        ("A letter that nobody judged", ["evaluate", "dead letter"]),
        ("Signals and news", ["sensor", "sensor"]),
        ("Dead letters, and the dead-letter queue", []),
        ("`signal.refused` is a name", []),
    ],
)
def test_the_check_sees_words_that_are_not_in_the_glossary(text: str, terms: list[str]) -> None:
    found = private_words("a page", text)

    assert sorted(problem.rpartition("'")[0].rpartition("'")[2] for problem in found) == sorted(terms)
