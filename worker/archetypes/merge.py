"""Merging: an archetype with its parameters filled in, and a pipeline file on top of it.

Mappings merge, lists of rules append, and anything else of the file takes the place of the archetype's. A member that
the file gives without a value takes the archetype's out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, cast

from worker.archetypes.archetype import Archetype, Report
from worker.archetypes.parameters import FileTooLarge, Filler, problem_of
from worker.yaml.document import Path, loose

EXTENDS: Final = "extends"
_KEYS: Final = ("archetype", "with", "replace")
# Lists that append. The others are one value: a list of dates that grows by itself would surprise its readers.
APPENDED: Final[frozenset[Path]] = frozenset({("validation", "rules"), ("postRun", "rules"), ("probes",)})
# Here a key has several spellings, and a file may use another one than its archetype.
_SPELLED: Final[Path] = ("job", "config")

Find = Callable[[str], Archetype | None]


class OriginKind(Enum):
    FILE = auto()
    ARCHETYPE = auto()
    BOTH = auto()


@dataclass(frozen=True, slots=True)
class PartOrigin:
    """PartOrigin: where a part of a resolved file is written. `path` is its place there."""

    kind: OriginKind
    path: Path


@dataclass(slots=True)
class ResolvedFile:
    """ResolvedFile: the whole content of a pipeline file, and where each part of it is written.

    `parameters` has, for each path of the archetype, the parameters that were filled in there; `given` are those that
    the file sets itself.
    """

    value: dict[str, object]
    archetype: Archetype
    origins: dict[Path, PartOrigin] = field(default_factory=dict[Path, PartOrigin])
    parameters: Mapping[Path, tuple[str, ...]] = field(default_factory=dict[Path, tuple[str, ...]])
    given: frozenset[str] = frozenset()

    def origin_of(self, path: Path) -> PartOrigin:
        """Return where a part is written; for a part that does not exist, where its nearest container is."""
        for length in range(len(path), -1, -1):
            found = self.origins.get(path[:length])
            if found is not None:
                return PartOrigin(found.kind, (*found.path, *path[length:]))
        return PartOrigin(OriginKind.FILE, path)

    def parameter_at(self, path: Path) -> str | None:
        """Return the parameter whose value, given by the file, is at a path of the archetype."""
        named = self.parameters.get(path, ())
        return next((name for name in named if name in self.given), None)


def resolve(value: Mapping[str, object], find: Find, report: Report) -> ResolvedFile | None:
    """Merge a file with the archetype that it extends. Reports mistakes at paths of the file; then None."""
    section = value.get(EXTENDS)
    if not isinstance(section, dict):
        report((EXTENDS,), "must be a mapping", "for example {archetype: NAME, with: {}}")
        return None
    extends = cast("dict[str, object]", section)
    unknown = [key for key in extends if key not in _KEYS]
    for key in unknown:
        report((EXTENDS, key), f"`{key}` is not a key here", f"accepted: {', '.join(_KEYS)}")
    name = extends.get("archetype")
    if not isinstance(name, str) or not name:
        report((EXTENDS, "archetype"), "is required: the id of the archetype", "")
        return None
    archetype = find(name)
    values = _read_values(archetype, extends.get("with"), report) if archetype else None
    replaced = _read_replaced(archetype, extends.get("replace"), report) if archetype else None
    if archetype is None or values is None or replaced is None or unknown:
        return None
    filler = Filler(values, {})
    try:
        base = cast("dict[str, object]", filler.fill(dict(archetype.body)))
    except FileTooLarge as problem:
        report((EXTENDS, "with"), str(problem), "use shorter values")
        return None
    given = extends.get("with")
    resolved = ResolvedFile(
        {}, archetype, parameters=filler.used, given=frozenset(cast("dict[str, object]", given or {}))
    )
    own = {key: member for key, member in value.items() if key != EXTENDS}
    resolved.value = _Merge(resolved.origins, replaced).mappings(base, own, (), (), ())
    return resolved


def _read_values(archetype: Archetype, given: object, report: Report) -> dict[str, object] | None:
    at: Path = (EXTENDS, "with")
    if given is not None and not isinstance(given, dict):
        report(at, "must be a mapping of parameters to values", "")
        return None
    members = cast("dict[str, object]", given or {})
    is_right = True
    for name in members:
        if name not in archetype.parameters:
            known = ", ".join(archetype.parameters) or "none"
            report((*at, name), f"`{name[:64]}` is no parameter of archetype `{archetype.id}`", f"accepted: {known}")
            is_right = False
    values: dict[str, object] = {}
    for name, parameter in archetype.parameters.items():
        if name in members:
            problem = problem_of(members[name], parameter.type)
            if problem:
                report((*at, name), problem, f"archetype `{archetype.id}` declares it as {parameter.type}")
                is_right = False
            values[name] = members[name]
        elif parameter.has_default:
            values[name] = parameter.default
        else:
            report(at, f"archetype `{archetype.id}` needs a value for `{name}`", f"add `{name}:` ({parameter.type})")
            is_right = False
    return values if is_right else None


def _read_replaced(archetype: Archetype, given: object, report: Report) -> frozenset[Path] | None:
    at: Path = (EXTENDS, "replace")
    if given is None:
        return frozenset()
    if not isinstance(given, list):
        report(at, "must be a list of paths", "for example [validation.rules]")
        return None
    found: set[Path] = set()
    for index, text in enumerate(cast("list[object]", given)):
        path: Path = tuple(text.split(".")) if isinstance(text, str) else ()
        if not path or not _has(archetype.body, path):
            report((*at, index), f"archetype `{archetype.id}` has nothing at `{str(text)[:64]}`", "correct the path")
            return None
        found.add(path)
    return frozenset(found)


def _has(value: object, path: Path) -> bool:
    for part in path:
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = cast("Mapping[str, object]", value)[cast("str", part)]
    return True


@dataclass(frozen=True, slots=True)
class _Merge:
    """Merges two values, and notes where each part comes from."""

    origins: dict[Path, PartOrigin]
    replaced: frozenset[Path]

    def mappings(
        self, base: Mapping[str, object], own: Mapping[str, object], at: Path, base_at: Path, own_at: Path
    ) -> dict[str, object]:
        self.origins[at] = PartOrigin(OriginKind.BOTH, own_at)
        named = {key: _same_key(key, base, at) for key in own}
        taken = {name for name in named.values() if name is not None}
        merged: dict[str, object] = {}
        for key, member in base.items():
            if key not in taken:
                merged[key] = self._take(member, (*at, key), OriginKind.ARCHETYPE, (*base_at, key))
        for key, member in own.items():
            name = named[key]
            path, mine = (*at, key), (*own_at, key)
            if member is None and name is not None:
                continue
            below = None if name is None or path in self.replaced else base[name]
            merged[key] = self._member(below, member, path, (*base_at, name or key), mine)
        rest = [key for key in merged if key not in own]
        return {key: merged[key] for key in [*own, *rest] if key in merged}  # the file's own order first

    def _member(self, below: object, member: object, at: Path, base_at: Path, own_at: Path) -> object:
        if isinstance(below, dict) and isinstance(member, dict):
            base, own = cast("dict[str, object]", below), cast("dict[str, object]", member)
            return self.mappings(base, own, at, base_at, own_at)
        if isinstance(below, list) and isinstance(member, list) and at in APPENDED:
            return self._lists(cast("list[object]", below), cast("list[object]", member), at, base_at, own_at)
        return self._take(cast("object", member), at, OriginKind.FILE, own_at)

    def _lists(
        self, below: Sequence[object], own: Sequence[object], at: Path, base_at: Path, own_at: Path
    ) -> list[object]:
        self.origins[at] = PartOrigin(OriginKind.BOTH, own_at)
        first = [
            self._take(item, (*at, index), OriginKind.ARCHETYPE, (*base_at, index)) for index, item in enumerate(below)
        ]
        more = [
            self._take(item, (*at, len(below) + index), OriginKind.FILE, (*own_at, index))
            for index, item in enumerate(own)
        ]
        return [*first, *more]

    def _take(self, value: object, at: Path, kind: OriginKind, path: Path) -> object:
        self.origins[at] = PartOrigin(kind, path)
        return value


def _same_key(key: str, base: Mapping[str, object], at: Path) -> str | None:
    if key in base or at != _SPELLED:
        return key if key in base else None
    return next((name for name in base if loose(name) == loose(key)), None)
