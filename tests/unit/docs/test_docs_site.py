"""Every page of the docs can be reached, every relative link leads to a file and a heading, every named file exists."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.conf import CHILDREN, FRONT, front_page, navigation

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"
OUTSIDE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
DEPLOY = [ROOT / "deploy" / "runbook.md", ROOT / "deploy" / "terraform" / "README.md"]
PAGES = [*OUTSIDE, *DEPLOY, *sorted(DOCS.rglob("*.md"))]
# Pages that name files of the repository. Decisions are not among them: they are as old as they are.
MAINTAINERS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", DOCS / "architecture.md"]
TOP = ("worker", "consumers", "scheduler", "docs", "deploy", "examples", "requirements", "bench")


def without_blocks(text: str) -> str:
    return re.sub(r"^(```+).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)


def links(text: str) -> list[str]:
    """The relative links of a page. Nothing in code is a link."""
    plain = re.sub(r"`[^`\n]*`", "`code`", without_blocks(text))
    return re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", plain)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    seen: Counter[str] = Counter()
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", without_blocks(text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def is_broken(page: Path, text: str, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    if not target.is_file():
        return True  # a folder, too, is no page of the site
    return bool(anchor) and anchor not in anchors(target.read_text(encoding="utf-8") if name else text)


def broken(page: Path, text: str) -> list[str]:
    return [link for link in links(text) if is_broken(page, text, link)]


def listed(text: str) -> Iterator[str]:
    """The entries of all toctrees of a page, written as `page` or `Title <page>`."""
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        lines = [line for line in block.splitlines() if line and not line.startswith(":")]
        yield from (re.sub(r"^.*<(.+)>$", r"\1", line) for line in lines)


def reachable() -> set[Path]:
    patterns = [f"docs/{entry}" if not entry.startswith("/") else entry[1:] for entry in listed(INDEX.read_text())]
    patterns += [f"{parent.rpartition('/')[0]}/{pattern}" for parent, pattern in CHILDREN.items()]
    return {path for pattern in patterns for path in ROOT.glob(f"{pattern}.md")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_and_anchor_resolves(page: Path) -> None:
    assert broken(page, page.read_text(encoding="utf-8")) == []


def test_the_front_page_of_the_site_is_the_readme_with_links_that_resolve() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert INDEX.read_text(encoding="utf-8").startswith(FRONT)
    assert broken(INDEX, front_page(text)) == []


def test_every_page_is_reachable_from_the_navigation() -> None:
    pages = {*PAGES} - {INDEX, ROOT / "README.md"}

    assert {str(page.relative_to(ROOT)) for page in pages - reachable()} == set()


def test_the_navigation_names_no_page_that_is_gone() -> None:
    entries = [entry for entry in listed(navigation(INDEX.read_text(encoding="utf-8"))) if not entry.endswith("*")]
    files = [ROOT / f"{entry[1:]}.md" if entry.startswith("/") else DOCS / f"{entry}.md" for entry in entries]

    assert [file for file in files if not file.is_file()] == []


@pytest.mark.parametrize("page", MAINTAINERS, ids=lambda page: page.name)
def test_every_file_that_a_page_for_maintainers_names_exists(page: Path) -> None:
    named = re.findall(r"`([\w./-]+)`", page.read_text(encoding="utf-8"))
    paths = [name for name in named if name.startswith(tuple(f"{top}/" for top in TOP))]

    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", MAINTAINERS, ids=lambda page: page.name)
def test_every_test_that_a_page_for_maintainers_names_exists(page: Path) -> None:
    """By its name alone, so that tests may move."""
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}

    assert set(re.findall(r"\btest_\w+\.py", page.read_text(encoding="utf-8"))) - there == set()


def test_the_words_of_the_glossary_are_sorted_and_each_is_there_once() -> None:
    words = re.findall(r"^\| ([^|]+) \| ", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)[2:]

    assert words == sorted(set(words), key=str.casefold)


# --- the checks can fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", ["nowhere.md", "glossary.md#no-such-heading", "#no-such-heading", "adr", "../nowhere"])
def test_the_check_sees_a_link_that_leads_nowhere(link: str) -> None:
    assert broken(INDEX, f"# A heading\n\n[text]({link})") == [link]


@pytest.mark.parametrize("link", ["glossary.md#glossary", "#heading-with-code--more", "adr/README.md"])
def test_the_check_accepts_a_link_that_leads_somewhere(link: str) -> None:
    assert broken(INDEX, f"# Heading with `code` & more\n\n[text]({link})") == []
