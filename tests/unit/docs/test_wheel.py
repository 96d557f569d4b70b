"""The wheel has every file that an installed `interlock` needs: programs and the data that commands copy.

The build backend puts everything of the named packages into the wheel that `.gitignore` does not exclude. The test
lists that without the backend, which only builds need.
"""

import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from worker.cli.commands.configure.project import TEMPLATES
from worker.cli.demo.folder import SCRIPT

ROOT = Path(__file__).parents[3]
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
WHEEL = BUILD["targets"]["wheel"]


def ignored() -> list[str]:
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    return [line.rstrip("/") for line in lines if line and not line.startswith("#")]


def in_wheel() -> Iterator[str]:
    patterns = ignored()
    for package in WHEEL["packages"]:
        for path in sorted((ROOT / package).rglob("*")):
            inside = path.relative_to(ROOT)
            if path.is_file() and not any(fnmatch(part, pattern) for part in inside.parts for pattern in patterns):
                yield inside.as_posix()


def test_the_patterns_that_exclude_files_are_names_as_this_test_reads_them() -> None:
    assert [pattern for pattern in ignored() if "/" in pattern or pattern.startswith("!")] == []


def test_nothing_but_the_packages_decides_what_is_in_the_wheel() -> None:
    assert (set(BUILD), set(BUILD["targets"]), set(WHEEL)) == ({"targets"}, {"wheel"}, {"packages"})


def test_the_demo_is_in_the_wheel() -> None:
    wheel = set(in_wheel())
    demo = {path.relative_to(ROOT).as_posix() for part in ("jobs", "pipelines") for path in (SCRIPT / part).glob("*.*")}

    assert {Path(name).name for name in demo} >= {"bronze.py", "lake.py", "bronze-orders.yaml", "gold-orders-next.yaml"}
    assert demo - wheel == set()


def test_the_files_of_a_first_project_are_in_the_wheel() -> None:
    templates = {path.relative_to(ROOT).as_posix() for path in TEMPLATES.iterdir()}

    assert len(templates) == 5
    assert templates - set(in_wheel()) == set()


def test_every_module_is_in_the_wheel() -> None:
    assert {"worker/cli/main.py", "consumers/outbox/relay.py", "scheduler/duty.py"} <= set(in_wheel())
