"""The floor plan, enforced: packages form a DAG, folders stay narrow, the core is pure, one file reads the clock.

Each rule is a function over source text, so that the tests at the end can show that it is able to fail.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("worker", "consumers", "scheduler")
DATA = "files"  # a folder of what commands copy for their user: data of a package, not modules of it

# The order of packages, from the ground up: a module imports its own package and packages of lower lines, nothing else.
# `docs/architecture.md` draws the same order; a test compares the two.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("worker.core", "worker.core.time", "worker.yaml"),
    ("worker.archetypes", "worker.core.model", "worker.runtime"),
    (
        "worker.core.collect",
        "worker.core.ledger",
        "worker.core.membership",
        "worker.core.run",
        "worker.core.schedule",
        "worker.core.statistics",
        "worker.store",
        "worker.telemetry",
    ),
    (
        "worker.core.dependencies",
        "worker.core.probes",
        "worker.core.sla",
        "worker.jobs",
        "worker.store.redis",
        "worker.store.sqlite",
        "worker.telemetry.otlp",
        "worker.web",
    ),
    ("worker.jobs.command", "worker.net", "worker.store.repos", "worker.targets", "worker.web.charts"),
    (
        "worker.jobs.http",
        "worker.probes",
        "worker.store.dynamodb",
        "worker.store.repos.delivery",
        "worker.store.repos.probes",
        "worker.web.identity",
    ),
    ("worker.config", "worker.jobs.aws", "worker.jobs.rest", "worker.membership", "worker.store.backends"),
    ("consumers.delivery", "scheduler", "worker.engine", "worker.operations", "worker.probes.adapters"),
    ("consumers.queues", "consumers.streams", "scheduler.cron", "worker.engine.intake", "worker.engine.probes"),
    ("consumers.outbox", "consumers.streams.aws", "scheduler.watchdog"),
    (
        "worker.operations.doctor",
        "worker.operations.explain",
        "worker.operations.migrate",
        "worker.operations.pipelines",
        "worker.operations.workers",
    ),
    (
        "consumers.alerts",
        "consumers.streams.embedded",
        "scheduler.watchdog.checks",
        "worker.operations.runs",
        "worker.operations.sensors",
    ),
    (
        "consumers.alerts.targets",
        "consumers.inbox",
        "consumers.streams.redis",
        "worker.operations.archive",
        "worker.operations.bulk",
    ),
    ("worker.web.live",),
    ("worker.web.api",),
    ("worker.web.console",),
    ("worker.web.console.pages",),
    ("worker.app",),
    ("worker.cli.terminal",),
    ("worker.cli.commands", "worker.cli.commands.runs"),
    (
        "worker.cli.commands.bulk",
        "worker.cli.commands.configure",
        "worker.cli.commands.control",
        "worker.cli.commands.operate",
        "worker.cli.commands.web",
    ),
    ("worker.cli.demo", "worker.cli.plan", "worker.cli.run"),
    ("worker.cli",),
)
WIDTH_MAX = 26

# A composer is above both its package and the packages below it; each is named with what it composes.
COMPOSERS = {
    "worker.cli.app": "the command `interlock`, as its library knows it",
    "worker.cli.catalogue": "the list of all commands, each of which it can load",
    "worker.cli.main": "the script `interlock`",
    "worker.cli.quick_commands": "the commands that run without Typer, each of which it can load",
}

# Modules that something other than an import starts.
ENTRY_POINTS = {
    "worker.cli.main": "the script `interlock`",
    "worker.web.probe": "the health check of the container image",
}

# Public class names that two modules may both use, with the reason.
SAME_NAME_ALLOWED: Mapping[str, str] = {}

# What the core may use of the standard library. None of these opens a file, reads a clock or draws a random number.
PURE = {
    "bisect", "calendar", "collections", "contextlib", "dataclasses", "datetime", "decimal", "difflib", "enum",
    "fractions", "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "re", "string", "struct",
    "types", "typing", "zoneinfo",
}  # fmt: skip

# A library that only some packages or modules may know.
KNOWN_ONLY_TO = {
    "aiobotocore": ("worker.net", "worker.store.dynamodb", "worker.jobs.aws", "worker.app", "consumers"),
    "botocore": ("worker.net", "worker.store.dynamodb", "worker.jobs.aws", "worker.operations.doctor", "consumers"),
    "aiohttp": ("worker.jobs", "worker.net", "worker.store.dynamodb", "worker.web", "worker.app", "consumers"),
    "fastapi": ("worker.web",),
    "httptools": ("worker.web",),
    "jinja2": ("worker.web.console",),
    "jwt": ("worker.web.identity.alb_access",),
    "starlette": ("worker.web",),
    "uvicorn": ("worker.web.server",),
    "msgspec": ("worker.runtime", "worker.store", "worker.web.live", "consumers.streams"),
    "opentelemetry": ("worker.telemetry.otlp",),
    "psycopg": ("worker.probes.adapters.postgresql",),
    "redis": ("worker.store.redis",),
    "sqlite3": ("worker.store.sqlite", "worker.probes.adapters.sql"),
    "yaml": ("worker.yaml.parser", "worker.config.render"),
    "croniter": ("worker.config.cron_text",),
    "apscheduler": ("scheduler.apscheduler_jobs",),
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

    @property
    def package(self) -> str:
        return self.name.rpartition(".")[0]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    # Kept: each module is asked by several rules, and to walk its tree takes longer than any rule.
    @cached_property
    def imports(self) -> list[str]:
        found: list[str] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found += (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found += (f"{node.module}.{alias.name}" for alias in node.names)
        return found

    @cached_property
    def calls(self) -> list[str]:
        """Calls of the form `a.b(...)` by their last two names, and `f(...)` by its name."""
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        return [".".join(ast.unparse(node.func).split(".")[-2:]) for node in calls]

    def public_classes(self) -> Iterator[str]:
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name


class Floor:
    """Every module of the tree by name, and what imports what."""

    def __init__(self, found: Iterable[Module]) -> None:
        self.modules = {module.name: module for module in found}

    def targets(self, module: Module) -> set[str]:
        """The modules of ours that a module imports."""
        named: set[str] = set()
        for name in module.imports:
            if name in self.modules:
                named.add(name)
            elif name.rpartition(".")[0] in self.modules:
                named.add(name.rpartition(".")[0])
        return named


def modules() -> list[Module]:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    files = [path for path in files if DATA not in path.relative_to(ROOT).parts]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files if path.stem != "__init__"]
    return [Module(name, (ROOT / name.replace(".", "/")).with_suffix(".py").read_text()) for name in names]


def is_in(name: str, homes: Iterable[str]) -> bool:
    return any(name == home or name.startswith(f"{home}.") for home in homes)


# --- the rules --------------------------------------------------------------------------------------------------------


def wrong_imports(floor: Floor, module: Module) -> list[str]:
    """Rule 1: imports of another package of the same layer or of a higher one."""
    level = {package: number for number, layer in enumerate(LAYERS) for package in layer}
    targets = [floor.modules[name] for name in floor.targets(module)]
    others = [target for target in targets if target.package != module.package]
    return sorted(each.name for each in others if level[each.package] >= level[module.package])


def import_cycles(floor: Floor) -> list[set[str]]:
    """Rule 1, within packages: modules that import each other, so that which is imported first decides what works."""
    sorter = TopologicalSorter({name: floor.targets(module) - {name} for name, module in floor.modules.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        return [set(error.args[1])]
    return []


def unknown_packages(found: Iterable[Module]) -> set[str]:
    """Rule 1: packages that have no place in the order."""
    return {module.package for module in found} - {package for layer in LAYERS for package in layer}


def wide_folders(found: Iterable[Module]) -> list[str]:
    """Rule 2: folders with more modules than a person can take in, and modules directly in `worker`."""
    widths: defaultdict[str, int] = defaultdict(int)
    for module in found:
        widths[module.package] += 1
    return sorted(name for name, width in widths.items() if width > WIDTH_MAX or name == "worker")


def imported_children(floor: Floor, module: Module) -> list[str]:
    """Rule 3: a parent package is the port, so it knows none of its children; a composer above both does."""
    if module.name in COMPOSERS:
        return []
    packages = {floor.modules[name].package for name in floor.targets(module)}
    return sorted(package for package in packages if package.startswith(f"{module.package}."))


def without_importer(floor: Floor) -> list[str]:
    """Rule 4: modules that nothing imports and nothing starts."""
    imported = {name for module in floor.modules.values() for name in floor.targets(module) if name != module.name}
    return sorted(floor.modules.keys() - imported - ENTRY_POINTS.keys())


def repeated_class_names(found: Iterable[Module]) -> dict[str, list[str]]:
    """Rule 4: public class names that more than one module defines."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for module in found:
        for name in module.public_classes():
            homes[name].append(module.name)
    return {name: where for name, where in homes.items() if len(where) > 1 and name not in SAME_NAME_ALLOWED}


def impurities(module: Module) -> list[str]:
    """What a module of the core uses that is neither the core nor pure."""
    if not is_in(module.name, ("worker.core",)):
        return []
    imports = [name for name in module.imports if name.split(".")[0] not in PURE]
    foreign = [name for name in imports if not is_in(name, ("worker.core",))]
    effects = [call for call in module.calls if call in {"open", "print", "input", "eval", "exec"}]
    return [*foreign, *effects]


def strays(module: Module) -> list[str]:
    """Libraries used outside the files that are meant to know them."""
    uses = [name for name in module.imports if name.split(".")[0] in KNOWN_ONLY_TO]
    return [name for name in uses if not is_in(module.name, KNOWN_ONLY_TO[name.split(".")[0]])]


def clock_readings(module: Module) -> list[str]:
    if module.name == "worker.runtime.clock":
        return []
    return [call for call in module.calls if call in CLOCK_CALLS]


def reached_through_engine(module: Module) -> list[str]:
    """What is used of an engine's attributes: only its methods are for others, which get its components passed."""
    return [
        ast.unparse(node)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and ast.unparse(node.value.value).split(".")[-1] in {"engine", "_engine"}
    ]


# --- the tree ---------------------------------------------------------------------------------------------------------

MODULES = modules()
FLOOR = Floor(MODULES)


@pytest.mark.parametrize("found", MODULES, ids=lambda found: found.name)
def test_a_module_keeps_to_its_place(found: Module) -> None:
    assert wrong_imports(FLOOR, found) == []
    assert imported_children(FLOOR, found) == []
    assert impurities(found) == []
    assert strays(found) == []
    assert clock_readings(found) == []
    assert reached_through_engine(found) == []


def test_no_modules_import_each_other() -> None:
    assert import_cycles(FLOOR) == []


def test_every_package_has_its_place_in_the_order() -> None:
    assert unknown_packages(MODULES) == set()


def test_the_order_names_no_package_that_is_gone() -> None:
    assert {package for layer in LAYERS for package in layer} == {module.package for module in MODULES}


def test_no_folder_is_too_wide() -> None:
    assert wide_folders(MODULES) == []


def test_every_module_has_an_importer() -> None:
    assert without_importer(FLOOR) == []


def test_no_public_class_name_is_defined_twice() -> None:
    assert repeated_class_names(MODULES) == {}


def test_packages_are_empty_so_that_every_import_names_its_home() -> None:
    filled = [str(path) for package in PACKAGES for path in (ROOT / package).rglob("__init__.py") if path.read_text()]

    assert filled == []


def test_a_module_is_named_for_what_lives_there() -> None:
    shapeless = {"utils", "util", "helpers", "helper", "common", "misc", "base"}

    assert [found.name for found in MODULES if found.name.split(".")[-1] in shapeless] == []


# --- each rule can fail -----------------------------------------------------------------------------------------------


def a_tree(**sources: str) -> Floor:
    """A tree of modules whose dots are written as two underscores."""
    return Floor(Module(name.replace("__", "."), source) for name, source in sources.items())


@pytest.mark.parametrize(
    ("name", "imported"),
    [
        ("worker.engine.engine", "worker.app.worker"),
        ("worker.store.repos.runs", "consumers.outbox.relay"),
        ("consumers.outbox.relay", "scheduler.watchdog.watchdog"),
        ("scheduler.cron.starter", "consumers.streams.source"),
        ("worker.core.run.machine", "worker.core.sla.watch"),
    ],
)
def test_the_check_sees_an_import_that_points_up_or_sideways(name: str, imported: str) -> None:
    floor = Floor([Module(name, f"from {imported} import Thing"), Module(imported, "class Thing: ...")])

    assert wrong_imports(floor, floor.modules[name]) == [imported]


def test_the_check_lets_an_import_point_down_or_stay_in_its_package() -> None:
    floor = a_tree(
        worker__engine__engine="from worker.engine.commits import C\nfrom worker.store.repos.runs import Runs",
        worker__engine__commits="class C: ...",
        worker__store__repos__runs="class Runs: ...",
    )

    assert wrong_imports(floor, floor.modules["worker.engine.engine"]) == []


def test_the_check_sees_an_import_of_a_module_by_its_package() -> None:
    floor = a_tree(worker__core__run__machine="from worker.core.sla import watch", worker__core__sla__watch="")

    assert wrong_imports(floor, floor.modules["worker.core.run.machine"]) == ["worker.core.sla.watch"]


def test_the_check_sees_modules_that_import_each_other() -> None:
    floor = a_tree(worker__engine__a="from worker.engine.b import B", worker__engine__b="from worker.engine.a import A")

    assert import_cycles(floor) == [{"worker.engine.a", "worker.engine.b"}]


def test_the_check_sees_a_package_without_a_place() -> None:
    assert unknown_packages([Module("worker.attic.box", "")]) == {"worker.attic"}


def test_the_check_sees_a_wide_folder_and_a_module_at_the_top() -> None:
    crowd = [Module(f"worker.engine.m{number}", "") for number in range(WIDTH_MAX + 1)]

    assert wide_folders([*crowd, Module("worker.clock", "")]) == ["worker", "worker.engine"]
    assert wide_folders(crowd[1:]) == []


def test_the_check_sees_a_parent_that_knows_its_child() -> None:
    floor = a_tree(worker__store__table="from worker.store.sqlite.tables import T", worker__store__sqlite__tables="")

    assert imported_children(floor, floor.modules["worker.store.table"]) == ["worker.store.sqlite"]


def test_the_check_sees_a_component_that_is_reached_through_the_engine() -> None:
    reaching = Module("scheduler.cron.starter", "self._engine.configs.current(x)\nengine.watches.wake")
    calling = Module("scheduler.cron.starter", "self._engine.handle(key, fact)\nAdoption(parts.engine.adopt)")

    assert sorted(reached_through_engine(reaching)) == ["engine.watches.wake", "self._engine.configs.current"]
    assert reached_through_engine(calling) == []


def test_the_check_sees_a_module_that_nothing_imports() -> None:
    floor = a_tree(worker__engine__engine="from worker.engine.commits import C", worker__engine__commits="")

    assert without_importer(floor) == ["worker.engine.engine"]


def test_the_check_sees_a_class_name_that_is_defined_twice() -> None:
    twice = [Module("worker.a.b", "class Thing: ..."), Module("worker.c.d", "class Thing: ...\nclass _Own: ...")]

    assert repeated_class_names(twice) == {"Thing": ["worker.a.b", "worker.c.d"]}


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


def test_the_check_sees_a_library_out_of_place() -> None:
    source = "from apscheduler.schedulers.asyncio import AsyncIOScheduler"

    assert strays(Module("scheduler.cron.starter", source))
    assert not strays(Module("scheduler.apscheduler_jobs", source))


@pytest.mark.parametrize("call", ["time.time()", "datetime.now(UTC)", "date.today()", "datetime.datetime.utcnow()"])
def test_the_check_sees_a_second_reader_of_the_clock(call: str) -> None:
    assert clock_readings(Module("worker.store.repos.runs", call))
