"""The pictures and the page of the architecture are those of the code."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from docs.diagrams.draw import FOLDER, drawings, package_imports
from docs.diagrams.layers import place
from docs.diagrams.packages import direct
from tests.test_architecture import LAYERS

PAGE = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text(encoding="utf-8")
PATH_FILES_MAX = 13
COMMITTED = sorted(FOLDER.glob("*.svg"))


@cache
def drawn() -> dict[Path, str]:
    """Not while tests are collected: that would draw in every test process."""
    return drawings()


def test_the_committed_pictures_are_those_that_are_drawn() -> None:
    assert sorted(drawn()) == COMMITTED


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_a_committed_picture_is_what_is_drawn_now(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == drawn()[path], "run `make diagrams`"


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_a_picture_is_well_formed_and_has_its_own_colours_in_the_dark(path: Path) -> None:
    root = ET.fromstring(drawn()[path])

    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert "@media (prefers-color-scheme: dark)" in drawn()[path]


def test_the_page_names_every_package_and_no_other() -> None:
    table = PAGE.partition("| Package |")[2].partition("\n\n")[0]

    assert sorted(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)) == sorted(
        name for row in LAYERS for name in row
    )


def test_the_path_of_a_sensor_is_short_enough_to_be_read() -> None:
    part = PAGE.partition("## The path of one sensor\n")[2].partition("\n## ")[0]
    files = re.findall(r"^\d+\. `([\w/.]+)`", part, re.MULTILINE)

    assert 0 < len(files) == len(set(files)) <= PATH_FILES_MAX


def test_an_import_that_follows_from_others_is_not_drawn() -> None:
    assert direct([("a", "b"), ("b", "c"), ("a", "c")]) == [("a", "b"), ("b", "c")]


def test_what_is_drawn_still_leads_to_everything_that_is_imported() -> None:
    imports = package_imports()
    below = {source: {to for other, to in direct(imports) if other == source} for source, _ in imports}

    def reached(name: str) -> set[str]:
        return below.get(name, set()).union(*(reached(each) for each in below.get(name, ())))

    assert [pair for pair in imports if pair[1] not in reached(pair[0])] == []


def test_nothing_in_a_row_overlaps() -> None:
    placed = place(
        [["top"], ["a", "b", "c"], ["d"]], [("top", "a"), ("top", "b"), ("top", "d"), ("c", "d")], lambda _: 50
    )

    rows = {row: sorted((x, spot.is_waypoint) for spot, x in placed.x.items() if spot.row == row) for row in range(3)}
    gaps = [right[0] - left[0] for row in rows.values() for left, right in pairwise(row)]
    assert min(gaps) >= 25
