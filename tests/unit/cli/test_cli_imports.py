"""What a command loads before it works: every package that it need not load is time that people wait."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.builders.command_line import interlock

# Prints, in the end, what is loaded. A module of the standard library is named if it takes long to load.
PROGRAM = """
import sys
from worker.cli.main import main
try:
    main()
finally:
    own = {"worker", "consumers", "scheduler"}
    files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    others = {name.partition(".")[0] for name, file in files.items() if "site-packages" in file}
    print("loaded:", *sorted(others - own), file=sys.stderr)
    print("ours:", *sorted(name for name in files if name.partition(".")[0] in own), file=sys.stderr)
    print("standard:", *sorted(set(files) & {"asyncio", "dataclasses", "inspect", "ssl", "sqlite3"}), file=sys.stderr)
"""
# The environment's own start loads these; no command does.
ENVIRONMENT = {"_distutils_hack", "_virtualenv", "sitecustomize", "coverage"}
TYPER = {"annotated_doc", "shellingham", "typer"}
STORE = {"msgspec", "typing_extensions"}


class LoadedModules:
    def __init__(self, *words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=60, check=True
        )
        lines = dict(line.split(":", 1) for line in done.stderr.splitlines() if line.startswith(("lo", "our", "sta")))
        self.packages = set(lines["loaded"].split()) - ENVIRONMENT
        self.ours = set(lines["ours"].split())
        self.standard = set(lines["standard"].split())


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_first_pages_load_no_library_and_no_command(option: str) -> None:
    loaded = LoadedModules(option)

    assert loaded.packages == set()
    assert loaded.standard <= {"inspect"}
    assert not [name for name in loaded.ours if name.startswith(("worker.cli.commands", "worker.store"))]


def test_a_sensor_is_written_without_what_understands_pipelines(here: Path) -> None:
    interlock("store", "init")

    loaded = LoadedModules("sensor", "put", "orders", "landing", "rows=1")

    assert loaded.packages <= TYPER | STORE
    assert commands_of(loaded) == {"sensors", "sensor_rows", "sensor_values"}
    assert not loaded.ours & {"worker.config.load", "worker.config.schema", "worker.core.run.facts", "worker.app.build"}


def test_the_status_is_shown_without_what_understands_pipelines(here: Path) -> None:
    interlock("store", "init")

    loaded = LoadedModules("status")

    assert loaded.packages <= TYPER | STORE
    assert commands_of(loaded) == {"status"}
    assert not loaded.ours & {"worker.config.load", "worker.config.schema", "worker.core.run.facts", "worker.app.build"}


def commands_of(loaded: LoadedModules) -> set[str]:
    home = "worker.cli.commands."
    return {name.removeprefix(home) for name in loaded.ours if name.startswith(home)}
