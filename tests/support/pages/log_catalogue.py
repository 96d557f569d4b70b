"""The table of docs/logs.md, made from the code: every event that is logged, how loud, and with which facts.

`python -m tests.support.pages.log_catalogue` updates the page; what an event means is written there by hand and kept. A
test fails while the page is not up to date, or an event has no meaning.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from worker.app import worklog

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "logs.md"
PACKAGES = ("worker", "consumers", "scheduler")
LEVELS = ("debug", "info", "warning", "error")
AS_SAID = "as it came"  # what libraries log keeps the level they gave it

_METHODS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}
_NAME = re.compile(r"[a-z]+\.[a-z_]+")
_TABLE = re.compile(r"(?P<begin><!-- events -->\n).*?(?P<end><!-- end -->)", re.DOTALL)
_ROW = re.compile(r"^\| `(?P<name>[a-z_.]+)` \| [^|]* \| [^|]* \| (?P<meaning>[^|]*) \|$", re.MULTILINE)


@dataclass(slots=True)
class Logged:
    """One event, wherever it is logged."""

    levels: set[str] = field(default_factory=set[str])
    facts: set[str] = field(default_factory=set[str])


@cache
def catalogue() -> dict[str, Logged]:
    """Every event by its name, in order."""
    found: dict[str, Logged] = {}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for name, levels, facts in logged_in(path.read_text(encoding="utf-8")):
            event = found.setdefault(name, Logged())
            event.levels |= set(levels)
            event.facts |= set(facts)
    return dict(sorted(found.items()))


def loud() -> set[str]:
    """The events that need a person."""
    return {name for name, event in catalogue().items() if "error" in event.levels}


def logged_in(source: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Name, levels and facts of every event that a module logs."""
    module = _Module(ast.parse(source))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            name = _event_name(node)
            levels = module.levels_of(node) if name else []
            if name and levels:
                yield name, levels, module.facts_of(node)


class _Module:
    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self._values = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self._returns = {
            function.name: node.value
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Return) and node.value
        }

    def levels_of(self, call: ast.Call) -> list[str]:
        """How loud a call logs; nothing if it does not log."""
        match call.func:
            case ast.Attribute(value=ast.Name(id="_log"), attr=method) if method in _METHODS:
                return [_METHODS[method]]
            case ast.Attribute(attr="log", value=ast.Call(func=ast.Name(id="logger"))):
                return [AS_SAID]
            case ast.Name(id=chosen) if chosen in self._values:
                return sorted(_named_levels(self._values[chosen]))
            case ast.Attribute(attr="_log") | ast.Name(id="log"):
                return [_work_level(_event_name(call))]
            case _:
                return []

    def facts_of(self, call: ast.Call) -> list[str]:
        facts = [keyword.arg for keyword in call.keywords if keyword.arg]
        if len(call.args) > 1:
            facts += self._keys(call.args[1])
        return [fact for fact in facts if fact != "exc_info"]

    def _keys(self, node: ast.expr) -> Iterator[str]:
        match node:
            case ast.Dict(keys=names, values=values):
                for name, value in zip(names, values, strict=True):
                    if name is None:
                        yield from self._keys(value)
                    elif isinstance(name, ast.Constant):
                        yield str(name.value)
            case ast.Name(id=name) if name in self._values:
                yield from self._keys(self._values[name])
            case ast.Call(func=ast.Attribute(attr=method)) if method in self._returns:
                yield from self._keys(self._returns[method])
            case _:
                return


def _event_name(call: ast.Call) -> str:
    texts = [node.value for node in call.args[:2] if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return texts[0] if texts and _NAME.fullmatch(texts[0]) else ""


def _work_level(name: str) -> str:
    """As the engine's log decides it."""
    if name in worklog.QUIET:
        return "debug"
    return "warning" if name in worklog.LOUD else "info"


def _named_levels(node: ast.expr) -> set[str]:
    """The levels that an expression chooses among, such as `_log.debug if quiet else _log.info`."""
    return {
        _METHODS[part.attr]
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "_log"
        if part.attr in _METHODS
    }


# --- the page ---------------------------------------------------------------------------------------------------------


def meanings(page: str) -> dict[str, str]:
    return {match["name"]: match["meaning"].strip() for match in _ROW.finditer(page)}


def with_fresh_table(page: str) -> str:
    kept = meanings(page)
    rows = [_row(name, event, kept) for name, event in catalogue().items()]
    table = "\n".join(["| Event | Level | Facts | Meaning |", "| --- | --- | --- | --- |", *rows, ""])
    return _TABLE.sub(lambda match: f"{match['begin']}{table}{match['end']}", page)


def _row(name: str, event: Logged, kept: Mapping[str, str]) -> str:
    facts = ", ".join(f"`{fact}`" for fact in sorted(event.facts))
    return f"| `{name}` | {_levels(event.levels)} | {facts} | {kept.get(name, '')} |"


def _levels(levels: Iterable[str]) -> str:
    return ", ".join(sorted(levels, key=(*LEVELS, AS_SAID).index))


if __name__ == "__main__":
    PAGE.write_text(with_fresh_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
