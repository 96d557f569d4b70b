"""The settings of the docs' site, which Sphinx builds from the repository itself (`make docs`)."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

project = "Interlock"
project_copyright = "the Interlock authors"
extensions = ["myst_parser"]
root_doc = "docs/index"
# The front page of the site shows README.md, so README.md is no page of its own.
include_patterns = ["CHANGELOG.md", "CONTRIBUTING.md", "deploy/**.md", "docs/**.md", "tests/vectors/*.md"]

myst_heading_anchors = 4
nitpicky = True

html_theme = "furo"
html_title = "Interlock"
html_extra_path = ["site"]
html_show_sourcelink = False
html_copy_source = False

LINK = re.compile(r"\]\((?!https?:|#)")
GLOB = re.compile(r"^([\w/-]+/\*)\n", re.MULTILINE)
# The runbook is a page of several parts, each with a title of the first level; the site wants one title for a page.
LATER_PART = re.compile(r"(?<!\A)^# ", re.MULTILINE)
FRONT = "% The text of README.md stands here on the site."
# Pages whose children are found by a pattern. It is not written in the page itself, which is read in other places, too.
CHILDREN = {"docs/jobs": "jobs/*", "docs/adr/README": "0*"}


def front_page(text: str) -> str:
    """Return README.md as a part of a page in this folder: its links are relative to the folder above."""
    return LINK.sub("](../", text)


def navigation(text: str) -> str:
    """Leave out patterns that match no page: a whole part of the docs may still be empty."""
    return GLOB.sub(lambda line: line[0] if list((ROOT / "docs").glob(f"{line[1]}.md")) else "", text)


def _read(_app: object, docname: str, source: list[str]) -> None:
    if docname == root_doc:
        source[0] = navigation(source[0]).replace(FRONT, front_page((ROOT / "README.md").read_text(encoding="utf-8")))
    if docname == "deploy/runbook":
        source[0] = LATER_PART.sub("## ", source[0])
    if docname in CHILDREN:
        source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{CHILDREN[docname]}\n```\n"


# Sphinx calls this with its application, whose type is not installed where the code is checked.
def setup(app: Any) -> dict[str, bool]:  # noqa: ANN401
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}


# Blocks of commands show their output too, which is no shell: an apostrophe in it is no unclosed string.
suppress_warnings = ["misc.highlighting_failure"]
