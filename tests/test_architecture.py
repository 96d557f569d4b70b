"""Imports point one way, the core is pure, and one file alone reads the clock.

Each rule is a function over source text, so that the tests at the end can show that it is able to fail.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("worker", "consumers", "scheduler")

# What the core may use of the standard library. None of these opens a file, reads a clock or draws a random number.
PURE = {
    "bisect", "calendar", "collections", "contextlib", "dataclasses", "datetime", "decimal", "difflib", "enum",
    "fractions", "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "re", "string", "struct",
    "types", "typing", "zoneinfo",
}  # fmt: skip

# Where a module stands; it may import its own layer and those below. Unlisted modules of `worker` are boundary code.
EDGE = ("worker.app", "worker.cli", "worker.web")
AROUND = ("consumers", "scheduler")

# A library that only some files may know.
KNOWN_ONLY_TO = {
    "aiobotocore": (
        "worker.net.aws",
        "worker.store.dynamodb",
        "worker.jobs",
        "consumers",
        "worker.app",
    ),
    "botocore": (
        "worker.net.aws",
        "worker.store.dynamodb",
        "worker.jobs",
        "worker.operations.doctor",
        "consumers",
    ),
    "aiohttp": (
        "worker.jobs",
        "worker.net",
        "worker.store.dynamodb",
        "worker.web",
        "worker.app",
        "consumers",
    ),
    "msgspec": (
        "worker.runtime.json_bytes",
        "worker.store.table",
        "consumers.streams.source",
        "consumers.streams.aws.change_records",
        "consumers.streams.aws.kinesis_records",
    ),
    "sqlite3": ("worker.store.sqlite",),
    "yaml": ("worker.yaml.parser", "worker.config.render"),
    "croniter": ("worker.config.cron_text",),
    "apscheduler": ("scheduler.apscheduler_ticker",),
    "slack_sdk": ("consumers.alerts",),
    "structlog": ("worker.runtime.logs",),
    "typer": ("worker.cli",),
    "rich": ("worker.cli",),
    "subprocess": ("worker.jobs.command",),
}

CLOCK_CALLS = {
    "time.time", "time.monotonic", "time.perf_counter", "time.time_ns", "time.monotonic_ns", "time.sleep",
    "datetime.now", "datetime.utcnow", "datetime.today", "date.today",
}  # fmt: skip


@dataclass(frozen=True)
class Module:
    name: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    def imports(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module

    def calls(self) -> Iterator[str]:
        """Calls of the form `a.b(...)` by their last two names, and `f(...)` by its name."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                parts = ast.unparse(node.func).split(".")
                yield ".".join(parts[-2:])


def modules() -> list[Module]:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    return [Module(name.removesuffix(".__init__"), path.read_text()) for name, path in zip(names, files, strict=True)]


def is_in(name: str, homes: tuple[str, ...]) -> bool:
    return any(name == home or name.startswith((f"{home}.", f"{home}_")) for home in homes)


def impurities(found: Module) -> list[str]:
    """What a module of the core uses that is neither the core nor pure."""
    if not is_in(found.name, ("worker.core",)):
        return []
    foreign = [name for name in found.imports() if name.split(".")[0] not in PURE and not is_in(name, ("worker.core",))]
    effects = [call for call in found.calls() if call in {"open", "print", "input", "eval", "exec"}]
    return [*foreign, *effects]


def wrong_directions(found: Module) -> list[str]:
    """Imports that point up: at the wiring, or from one of the two outer packages at the other."""
    if is_in(found.name, EDGE):
        return []
    forbidden: tuple[str, ...] = EDGE
    if is_in(found.name, ("consumers",)):
        forbidden += ("scheduler",)
    elif is_in(found.name, ("scheduler",)):
        forbidden += ("consumers",)
    else:
        forbidden += AROUND
    if is_in(found.name, ("worker.engine",)):
        forbidden += (
            "worker.store.sqlite",
            "worker.store.dynamodb",
            "worker.store.redis",
            "worker.store.backends.open",
        )
    return [name for name in found.imports() if is_in(name, forbidden)]


def strays(found: Module) -> list[str]:
    """Libraries used outside the files that are meant to know them."""
    uses = [name for name in found.imports() if name.split(".")[0] in KNOWN_ONLY_TO]
    return [name for name in uses if not is_in(found.name, KNOWN_ONLY_TO[name.split(".")[0]])]


def clock_readings(found: Module) -> list[str]:
    if found.name == "worker.runtime.clock":
        return []
    return [call for call in found.calls() if call in CLOCK_CALLS]


MODULES = modules()


@pytest.mark.parametrize("found", MODULES, ids=lambda found: found.name)
def test_a_module_keeps_to_its_place(found: Module) -> None:
    assert impurities(found) == []
    assert wrong_directions(found) == []
    assert strays(found) == []
    assert clock_readings(found) == []


def test_packages_are_empty_so_that_every_import_names_its_home() -> None:
    filled = [str(path) for package in PACKAGES for path in (ROOT / package).rglob("__init__.py") if path.read_text()]

    assert filled == []


def test_a_module_is_named_for_what_lives_there() -> None:
    shapeless = {"utils", "util", "helpers", "helper", "common", "misc", "base"}

    assert [found.name for found in MODULES if found.name.split(".")[-1] in shapeless] == []


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "import aiobotocore.session",
        "from worker.store.table import Row",
        "import random",
        "import time",
        "import pydantic",
        "def f(): return open('x')",
    ],
)
def test_the_check_sees_an_impure_core(source: str) -> None:
    assert impurities(Module("worker.core.model.rules", source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("worker.engine.engine", "from worker.store.sqlite.tables import SqliteTables"),
        ("worker.config.load", "from worker.cli.main import main"),
        ("worker.store.repos.runs", "import consumers.outbox.relay"),
        ("consumers.outbox.relay", "from scheduler.cron.starter import due"),
        ("scheduler.cron.starter", "from consumers.outbox.relay import Relay"),
    ],
)
def test_the_check_sees_an_import_that_points_up(name: str, source: str) -> None:
    assert wrong_directions(Module(name, source))


def test_the_check_sees_a_library_out_of_place() -> None:
    assert strays(Module("scheduler.cron.starter", "from apscheduler.schedulers.asyncio import AsyncIOScheduler"))
    assert not strays(
        Module("scheduler.apscheduler_ticker", "from apscheduler.schedulers.asyncio import AsyncIOScheduler")
    )


@pytest.mark.parametrize("call", ["time.time()", "datetime.now(UTC)", "date.today()", "datetime.datetime.utcnow()"])
def test_the_check_sees_a_second_reader_of_the_clock(call: str) -> None:
    assert clock_readings(Module("worker.store.repos.runs", call))
