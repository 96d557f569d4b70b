"""What a command loads before it works: every package that it need not load is time that people wait."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.builders.command_line import interlock

EXAMPLES = Path(__file__).parents[3] / "examples"

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
STORE = {"msgspec", "typing_extensions"}
# What understands pipelines, runs and settings. None of it may be loaded before a sensor is written.
HEAVY = {
    "worker.config.load",
    "worker.config.schema",
    "worker.config.settings",
    "worker.config.versions",
    "worker.core.model.pipeline",
    "worker.core.run.facts",
    "worker.app.build",
}


class LoadedModules:
    def __init__(self, *words: str, exits_with: int = 0) -> None:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == exits_with, done.stderr
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


@pytest.mark.parametrize("words", [("orders", "landing"), ("orders-daily", "orders-export")], ids=["new", "known"])
def test_a_sensor_is_written_without_typer_and_without_what_understands_pipelines(
    here: Path, words: tuple[str, str]
) -> None:
    interlock("store", "init")
    interlock("pipelines", "push", EXAMPLES / "orders-daily.yaml", "--yes")

    loaded = LoadedModules("sensor", "put", *words, "rows=1")

    assert loaded.packages <= STORE
    assert commands_of(loaded) == {"sensor_rows", "sensor_values"}
    assert not loaded.ours & HEAVY


def test_the_status_is_shown_without_typer_and_without_what_understands_pipelines(here: Path) -> None:
    interlock("store", "init")

    loaded = LoadedModules("status")

    assert loaded.packages <= STORE
    assert commands_of(loaded) == {"status_table"}
    assert not loaded.ours & HEAVY


def test_a_command_on_a_file_loads_no_library_for_aws(here: Path) -> None:
    interlock("store", "init")

    loaded = LoadedModules("sensor", "get", "orders", "landing", exits_with=2)

    assert not loaded.packages & {"aiobotocore", "botocore", "aiohttp", "pydantic", "rich"}


def commands_of(loaded: LoadedModules) -> set[str]:
    home = "worker.cli.commands."
    return {name.removeprefix(home) for name in loaded.ours if name.startswith(home)}
