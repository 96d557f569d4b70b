"""Compare what archetypes bring to the pipelines that use them: which parts change, and where."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from worker.cli.terminal.console import Screen, counted
from worker.config.render import to_mapping
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.core.model.values import Json, show

NAMES_SHOWN_MAX: Final = 10
PARTS_SHOWN_MAX: Final = 20
_HASH_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class PartChange:
    """PartChange is one part of a pipeline file; None means that the part does not exist on that side."""

    path: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.path}: {self.after} is new"
        if self.after is None:
            return f"{self.path}: {self.before} is gone"
        return f"{self.path}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchetypeChange:
    """ArchetypeChange is a pipeline that uses an archetype, and the parts of it that change, if any."""

    pipeline: PipelineId
    archetype: str
    before: str  # the hash of the archetype that the old file extended; "" if it extended none
    after: str
    parts: tuple[PartChange, ...]

    @property
    def record(self) -> dict[str, Json]:
        parts: list[Json] = [{"path": each.path, "before": each.before, "after": each.after} for each in self.parts]
        return {
            "pipeline": self.pipeline,
            "archetype": self.archetype,
            "before": self.before or None,
            "after": self.after or None,
            "changes": parts,
        }


def archetype_changes(before: Sequence[Pipeline], after: Sequence[Pipeline]) -> Iterator[ArchetypeChange]:
    """Yield the pipelines of both sides that use an archetype and differ, in order of id."""
    old = {pipeline.id: pipeline for pipeline in before}
    for new in sorted(after, key=lambda pipeline: pipeline.id):
        was = old.get(new.id)
        used = new.archetype or (was.archetype if was else None)
        if was is None or used is None or was == new:
            continue
        yield ArchetypeChange(
            pipeline=new.id,
            archetype=used.id,
            before=was.archetype.hash if was.archetype else "",
            after=new.archetype.hash if new.archetype else "",
            parts=tuple(_parts(_flat(to_mapping(was)), _flat(to_mapping(new)))),
        )


def _parts(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[PartChange]:
    for path in dict.fromkeys([*before, *after]):
        if before.get(path) != after.get(path) and not path.startswith("pipeline.archetype."):
            yield PartChange(path, before.get(path), after.get(path))


def _flat(value: Json, at: str = "") -> dict[str, str]:
    match value:
        case Mapping() if value:
            below = [_flat(member, f"{at}.{key}" if at else key) for key, member in value.items()]
        case list() | tuple() if value:
            below = [_flat(item, f"{at}[{index}]") for index, item in enumerate(value)]
        case _:
            return {at: show(value)}
    return {path: text for each in below for path, text in each.items()}


def show_archetype_changes(screen: Screen, changes: Sequence[ArchetypeChange], *, show_all: bool) -> None:
    """Show each archetype with the pipelines that change alike; without `show_all`, the first of them."""
    for name in dict.fromkeys(change.archetype for change in changes):
        users = [change for change in changes if change.archetype == name]
        hashes = dict.fromkeys(f"{_short(each.before)} -> {_short(each.after)}" for each in users)
        screen.line(f"archetype {name} ({', '.join(hashes)}): {counted(len(users), 'pipeline')}", style="bold")
        alike: dict[tuple[PartChange, ...], list[PipelineId]] = {}
        for change in users:
            alike.setdefault(change.parts, []).append(change.pipeline)
        for parts, pipelines in alike.items():
            _show_group(screen, parts, pipelines, show_all=show_all)
        screen.line()


def _show_group(
    screen: Screen, parts: Sequence[PartChange], pipelines: Sequence[PipelineId], *, show_all: bool
) -> None:
    if not parts:
        screen.line(f"  {counted(len(pipelines), 'pipeline')} without a change: {_names(pipelines, show_all=show_all)}")
        return
    screen.line(f"  {counted(len(pipelines), 'pipeline')}: {_names(pipelines, show_all=show_all)}", style="yellow")
    listed = parts if show_all else parts[:PARTS_SHOWN_MAX]
    for part in listed:
        screen.line(f"    {part}")
    if len(listed) < len(parts):
        screen.line(f"    ... {counted(len(parts) - len(listed), 'more part')}; --all lists them", style="dim")


def _names(pipelines: Sequence[PipelineId], *, show_all: bool) -> str:
    listed = pipelines if show_all else pipelines[:NAMES_SHOWN_MAX]
    more = len(pipelines) - len(listed)
    return ", ".join(listed) + (f" and {more:,} more" if more else "")


def _short(text: str) -> str:
    return text[:_HASH_SHOWN] or "none"
