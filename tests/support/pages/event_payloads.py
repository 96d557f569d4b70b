"""Which fields each event carries, found in the code: in every place that emits an event."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).parents[3]
PACKAGES: Final = ("worker", "consumers", "scheduler")
DEMO: Final = ROOT / "worker" / "cli" / "demo"  # its events are made up, and marked in their detail
EMITTERS: Final = {"EmitEvent", "Event"}
DEPTH_MAX: Final = 8

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class _Module:
    tree: ast.Module
    functions: dict[str, Function] = field(default_factory=dict[str, Function])


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where an expression stands; `bound` holds what its caller passed, if the caller is known."""

    module: _Module
    function: Function | None
    bound: "Mapping[str, tuple[ast.expr, _Scope]] | None" = None


@cache
def payloads() -> Mapping[str, set[str]]:
    """Return the fields of each event that the code emits, by its type."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in _modules():
        for function in module.functions.values():
            for call in _calls(function):
                for event_type, fields in _emitted(call, _Scope(module, function)):
                    found[event_type] |= fields
    return dict(found)


@cache
def _modules() -> list[_Module]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    modules = [_Module(ast.parse(path.read_text(encoding="utf-8"))) for path in paths if DEMO not in path.parents]
    for module in modules:
        module.functions = {
            f"{node.name}@{node.lineno}": node
            for node in ast.walk(module.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
    return modules


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def _emitted(call: ast.Call, scope: _Scope) -> Iterator[tuple[str, set[str]]]:
    """The events that a call emits itself, or by a function that it gives the type to."""
    types = [name for part in (*call.args, *(each.value for each in call.keywords)) for name in _types(part)]
    if not types:
        return
    name = _called(call)
    if name in EMITTERS:
        details = [each.value for each in call.keywords if each.arg == "detail"]
        fields = {each for detail in details for each in _fields(detail, scope)}
        yield from ((event_type, fields) for event_type in types)
        return
    for inner in _named(name, scope.module):
        passed = _Scope(inner.module, inner.function, _bound(call, inner.function, scope))
        for emit in _calls(inner.function or inner.module.tree):
            if _called(emit) in EMITTERS:
                details = [each.value for each in emit.keywords if each.arg == "detail"]
                fields = {each for detail in details for each in _fields(detail, passed)}
                yield from ((event_type, fields) for event_type in types)


def _types(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Attribute(value=ast.Name(id="EventType"), attr=name):
            yield name
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_types(body), *_types(orelse))
        case _:
            return


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _named(name: str, module: _Module) -> list[_Scope]:
    """The functions of this name: those of the module, or else all."""
    for among in ([module], _modules()):
        found = [
            _Scope(each, function) for each in among for function in each.functions.values() if function.name == name
        ]
        if found:
            return found
    return []


def _bound(call: ast.Call, function: Function | None, scope: _Scope) -> Mapping[str, tuple[ast.expr, _Scope]]:
    if function is None:
        return {}
    names = [each.arg for each in function.args.args if each.arg != "self"]
    bound = {name: (value, scope) for name, value in zip(names, call.args, strict=False)}
    known = {*names, *(each.arg for each in function.args.kwonlyargs)}
    bound |= {each.arg: (each.value, scope) for each in call.keywords if each.arg in known}
    if function.args.kwarg:
        rest = {each.arg: each.value for each in call.keywords if each.arg and each.arg not in known}
        keys: list[ast.expr | None] = [ast.Constant(name) for name in rest]
        bound[function.args.kwarg.arg] = (ast.Dict(keys, [*rest.values()]), scope)
    return bound


# --- the fields of an expression --------------------------------------------------------------------------------------


def _fields(node: ast.expr, scope: _Scope, depth: int = 0) -> Iterator[str]:
    if depth > DEPTH_MAX:
        return
    match node:
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if key is None:
                    yield from _fields(value, scope, depth + 1)
                elif isinstance(key, ast.Constant):
                    yield str(key.value)
        case ast.DictComp(generators=[ast.comprehension(iter=ast.Tuple(elts=names))]):
            yield from (str(each.value) for each in names if isinstance(each, ast.Constant))
        case ast.DictComp(generators=[ast.comprehension(iter=ast.Call(func=ast.Attribute(value=whole, attr="items")))]):
            yield from _fields(whole, scope, depth + 1)
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_fields(body, scope, depth + 1), *_fields(orelse, scope, depth + 1))
        case ast.Name(id=name):
            yield from _fields_of_name(name, scope, depth)
        case ast.Call():
            for inner in _named(_called(node), scope.module):
                yield from _fields_returned(inner, depth)
        case _:
            return


def _fields_of_name(name: str, scope: _Scope, depth: int) -> Iterator[str]:
    if scope.bound and name in scope.bound:
        value, outer = scope.bound[name]
        yield from _fields(value, outer, depth + 1)
        return
    function = scope.function
    if function is None:
        return
    for value in _assigned(name, function):
        yield from _fields(value, scope, depth + 1)
    yield from _set_later(name, function)
    if any(each.arg == name for each in (*function.args.args, *function.args.kwonlyargs)):
        for caller in scope.module.functions.values():
            for call in _calls(caller):
                if _called(call) == function.name:
                    yield from _fields_passed(name, call, scope, caller, depth)


def _fields_passed(name: str, call: ast.Call, scope: _Scope, caller: Function, depth: int) -> Iterator[str]:
    passed = _bound(call, scope.function, _Scope(scope.module, caller))
    if name in passed:
        value, outer = passed[name]
        yield from _fields(value, outer, depth + 1)


def _assigned(name: str, function: Function) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                yield value
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                yield value
            case _:
                pass


def _set_later(name: str, function: Function) -> Iterator[str]:
    """The fields of `name["field"] = value`."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=found), slice=ast.Constant(value=key))]):
                if found == name:
                    yield str(key)
            case _:
                pass


def _fields_returned(scope: _Scope, depth: int) -> Iterator[str]:
    for node in ast.walk(scope.function or scope.module.tree):
        if isinstance(node, ast.Return) and node.value is not None:
            yield from _fields(node.value, scope, depth + 1)
