"""Loads pipeline files into core pipelines, and reports every problem of a file with its position."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TypeAlias, cast

from worker.archetypes.archetype import Archetype, read_archetype
from worker.archetypes.merge import EXTENDS, OriginKind, ResolvedFile, resolve
from worker.config.calendars import read_calendar
from worker.config.documents import read_document, without_leftovers
from worker.config.files import UnreadableFile, read_text, yaml_files
from worker.config.lint import lint, lint_together, schedule_path
from worker.config.pipelines import read_pipeline
from worker.config.problems import Problem, Problems, ProblemSeverity, suggest
from worker.config.schema import CalendarFile, PipelineFile
from worker.config.shape import read_shape
from worker.core.dependencies.checks import check_dependencies
from worker.core.model.calendars import Calendar
from worker.core.model.ids import PipelineId
from worker.core.model.pipeline import Pipeline
from worker.core.model.probes import ProbeType
from worker.jobs.target_urls import hosts_in, hosts_of
from worker.yaml.document import Document, Fault, TextMark
from worker.yaml.document import Path as KeyPath

CALENDARS_DIRECTORY = "calendars"
ARCHETYPES_DIRECTORY = "archetypes"

__all__ = ["Directory", "Loaded", "Problem", "ProblemSeverity", "load_calendar_text", "load_directory", "load_text"]

# Archetypes by id; None for one that has errors, so that its users are not told that it does not exist.
ArchetypesById: TypeAlias = Mapping[str, Archetype | None]
OnFile = Callable[[Path, int, int], None]
# Returns why a worker would not connect to a host; None if it would, or if only its addresses can show that.
Forbids = Callable[[str], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Holds one loaded file. `pipeline` is set exactly if there is no error."""

    file: str
    pipeline: Pipeline | None
    problems: tuple[Problem, ...]
    resolved: ResolvedFile | None = None  # of a file that extends an archetype, even if it has errors

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity is ProblemSeverity.ERROR)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity is ProblemSeverity.WARNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """Holds many loaded files. `problems` are those of all files, of calendars, and across files."""

    files: tuple[Loaded, ...]
    calendars: Mapping[str, Calendar]
    problems: tuple[Problem, ...]

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        return tuple(loaded.pipeline for loaded in self.files if loaded.pipeline is not None)

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity is ProblemSeverity.ERROR)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity is ProblemSeverity.WARNING)


def load_text(
    text: str,
    *,
    file: str = "<text>",
    calendars: Mapping[str, Calendar] | None = None,
    archetypes: ArchetypesById | None = None,
    lenient: bool = False,
    today: date | None = None,
) -> Loaded:
    """Load one pipeline.

    `lenient` is for rows already in a store and for files of the Lambda edition: what that edition ignored or replaced
    by a default is a warning, and only what cannot be parsed is an error. With `today`, lint checks the pipeline for
    the year from that date; without it, the pipeline is only parsed.
    """
    return _load(text, file, calendars or {}, archetypes or {}, lenient=lenient, today=today).loaded()


def load_calendar_text(
    text: str, *, file: str = "<text>", lenient: bool = False
) -> tuple[Calendar | None, tuple[Problem, ...]]:
    """Load one calendar; None if there is an error."""
    document, problems = read_document(text, file, lenient=lenient)
    if document is None:
        return None, problems.found
    model = read_shape(CalendarFile, document.value, problems)
    if model is None:
        return None, problems.found
    if not model.name:
        problems.error(("name",), "is required: the name by which pipelines refer to this calendar")
    calendar = read_calendar(model.name, model, (), problems)
    return None if problems.has_errors else calendar, problems.found


def load_directory(
    paths: Iterable[str | Path],
    *,
    calendars_dir: str | Path | None = None,
    lenient: bool = False,
    on_file: OnFile | None = None,
    today: date | None = None,
    forbids: Forbids | None = None,
    known: Mapping[PipelineId, Pipeline] | None = None,
    upstreams_required: bool = True,
) -> Directory:
    """Load the given files, and the `*.yaml` and `*.yml` of the given directories, sorted by name.

    A bad file never hides the others. Calendars come from `calendars_dir`, else from the directory `calendars` next to
    the files, and archetypes from the directory `archetypes` there. `on_file(path, done, total)` is called after each
    file. `today` is as in `load_text`. With `forbids`, a job address that no worker would connect to is an error. With
    `upstreams_required`, a pipeline of a directory may run only after pipelines of the given files and of `known`,
    which are not checked themselves.
    """
    roots = [Path(path) for path in paths]
    found = _Calendars.load(roots, calendars_dir, lenient=lenient)
    archetypes, bad_archetypes = _load_archetypes(roots)
    files, refused = _list_files(roots)
    readings: list[_Reading] = []
    for done, path in enumerate(files, start=1):
        readings.append(_load_file(path, found.calendars, archetypes, lenient=lenient, today=today))
        if forbids:
            _check_addresses(readings[-1], forbids)
        if on_file:
            on_file(path, done, len(files))
    _check_together(readings)
    is_whole = known is not None or any(root.is_dir() for root in roots)
    _check_after(readings, known or {}, is_whole=upstreams_required and is_whole)
    loaded = tuple(reading.loaded() for reading in readings)
    problems = (*refused, *bad_archetypes, *found.problems, *(problem for each in loaded for problem in each.problems))
    return Directory(files=loaded, calendars=found.calendars, problems=problems)


@dataclass(slots=True)
class _Reading:
    """Holds a file while it is being read: other files may still add problems to it."""

    problems: Problems
    pipeline: Pipeline | None = None
    has_list: bool = False
    resolved: ResolvedFile | None = None

    def loaded(self) -> Loaded:
        pipeline = None if self.problems.has_errors else self.pipeline
        return Loaded(file=self.problems.file, pipeline=pipeline, problems=self.problems.found, resolved=self.resolved)


def _load(
    text: str,
    file: str,
    calendars: Mapping[str, Calendar],
    archetypes: ArchetypesById,
    *,
    lenient: bool,
    today: date | None,
) -> _Reading:
    document, problems = read_document(text, file, lenient=lenient)
    if document is None:
        return _Reading(problems)
    value, resolved = document.value, None
    if isinstance(value, dict) and EXTENDS in value:
        resolved = _resolve(document, archetypes, problems)
        if resolved is None:
            return _Reading(problems)
        value = resolved.value
    model = read_shape(PipelineFile, without_leftovers(cast("object", value), problems), problems)
    if model is None:
        return _Reading(problems, resolved=resolved)
    reading = _Reading(problems, read_pipeline(model, calendars, problems), bool(model.schedules), resolved)
    if today and reading.pipeline and not problems.has_errors:
        for finding in lint(reading.pipeline, today=today, is_list=reading.has_list):
            problems.warning(finding.path, finding.message, finding.hint)
    return reading


def _resolve(document: Document, archetypes: ArchetypesById, problems: Problems) -> ResolvedFile | None:
    """Merge a file with its archetype, and make problems name both places of what the archetype brings."""

    def find(name: str) -> Archetype | None:
        found = archetypes.get(name)
        if found is not None:
            return found
        if name in archetypes:
            problems.error((EXTENDS, "archetype"), f"archetype `{name[:64]}` has errors", "fix them first")
        else:
            message = f"there is no archetype `{name[:64]}`" if archetypes else "no archetypes are at hand"
            hint = suggest(name, archetypes) or f"add it to the directory `{ARCHETYPES_DIRECTORY}` next to the files"
            problems.error((EXTENDS, "archetype"), message, hint)
        return None

    value = cast("dict[str, object]", document.value)
    resolved = resolve(value, find, problems.error)
    if resolved is None:
        return None
    archetype = resolved.archetype

    def locate(path: KeyPath, key: bool) -> tuple[TextMark, str]:
        origin = resolved.origin_of(path)
        if origin.kind is not OriginKind.ARCHETYPE:
            return document.locate(origin.path, key=key), ""
        there, given = archetype.document.locate(origin.path, key=key), resolved.parameter_at(origin.path)
        here = document.locate((EXTENDS, "with", given)) if given else document.locate((EXTENDS,), key=True)
        return here, f" (in {archetype.file}:{there.line}:{there.column})"

    problems.relocate(locate)
    about = resolved.value.get("pipeline")
    if isinstance(about, dict):
        made_from = {"id": archetype.id, "hash": archetype.hash}
        resolved.value["pipeline"] = {**cast("dict[str, object]", about), "archetype": made_from}
    return resolved


def _load_archetypes(roots: Iterable[Path]) -> tuple[ArchetypesById, list[Problem]]:
    beside = dict.fromkeys((root if root.is_dir() else root.parent) / ARCHETYPES_DIRECTORY for root in roots)
    files, refused = _list_files(path for path in beside if path.is_dir())
    found: dict[str, Archetype | None] = {}
    for path in files:
        archetype, problems = _load_archetype_file(path)
        if archetype and archetype.id in found:
            problems.error(("archetype", "id"), f"`{archetype.id}` is also the id of another archetype", "rename one")
        elif archetype:
            found[archetype.id] = None if problems.has_errors else archetype
        refused += problems.found
    return found, refused


def _load_archetype_file(path: Path) -> tuple[Archetype | None, Problems]:
    try:
        text = read_text(path)
    except UnreadableFile as error:
        problems = Problems(str(path), None)
        problems.fault(Fault(error.mark, str(error)))
        return None, problems
    return load_archetype_text(text, str(path))


def load_archetype_text(text: str, file: str) -> tuple[Archetype | None, Problems]:
    """Load one archetype; None if it cannot be used.

    Whether its parts are right shows in the files that use it.
    """
    document, problems = read_document(text, file)
    if document is None:
        return None, problems
    archetype = read_archetype(document, file, problems.error)
    return archetype, problems


def _load_file(
    path: Path,
    calendars: Mapping[str, Calendar],
    archetypes: ArchetypesById,
    *,
    lenient: bool,
    today: date | None,
) -> _Reading:
    try:
        text = read_text(path)
    except UnreadableFile as error:
        problems = Problems(str(path), None)
        problems.fault(Fault(error.mark, str(error)))
        return _Reading(problems)
    reading = _load(text, str(path), calendars, archetypes, lenient=lenient, today=today)
    if reading.pipeline and reading.pipeline.id and reading.pipeline.id != path.stem:
        message = f"the file is called `{path.stem}`, and the pipeline `{reading.pipeline.id}`"
        reading.problems.warning(("pipeline", "id"), message, "give both the same name, so that people find it")
    return reading


def _check_addresses(reading: _Reading, forbids: Forbids) -> None:
    for path, host in _addresses(reading.pipeline) if reading.pipeline else ():
        if reason := forbids(host):
            what, _, remedy = reason.partition("; ")
            reading.problems.error(path, f"no worker connects to it: {what}", remedy)


def _addresses(pipeline: Pipeline) -> Iterator[tuple[KeyPath, str]]:
    """Yield each host that the job and the probes of a pipeline name, with its place in the file."""
    for below, host in hosts_of(pipeline.job) if pipeline.job else ():
        yield ("job", "config", *below), host
    for index, probe in enumerate(pipeline.probes):
        for below, host in hosts_in(probe.config) if probe.type is ProbeType.HTTP else ():
            yield ("probes", index, "config", *below), host


def _list_files(roots: Iterable[Path]) -> tuple[list[Path], list[Problem]]:
    files: dict[Path, None] = {}
    refused: list[Problem] = []
    for root in roots:
        try:
            files.update(dict.fromkeys(yaml_files(root)))
        except UnreadableFile as error:
            problems = Problems(str(root), None)
            problems.fault(Fault(error.mark, str(error)))
            refused += problems.found
    return list(files), refused


@dataclass(frozen=True, slots=True)
class _Calendars:
    calendars: Mapping[str, Calendar]
    problems: tuple[Problem, ...]

    @classmethod
    def load(cls, roots: Iterable[Path], given: str | Path | None, *, lenient: bool) -> "_Calendars":
        beside = dict.fromkeys((root if root.is_dir() else root.parent) / CALENDARS_DIRECTORY for root in roots)
        directories = [Path(given)] if given else [path for path in beside if path.is_dir()]
        files, refused = _list_files(directories)
        calendars: dict[str, Calendar] = {}
        for path in files:
            calendar, problems = _load_calendar_file(path, lenient=lenient)
            refused += problems
            if calendar:
                # As in the Lambda edition, the last calendar of a name counts.
                calendars[calendar.name] = calendar
        return cls(calendars, tuple(refused))


def _load_calendar_file(path: Path, *, lenient: bool) -> tuple[Calendar | None, tuple[Problem, ...]]:
    try:
        text = read_text(path)
    except UnreadableFile as error:
        problems = Problems(str(path), None)
        problems.fault(Fault(error.mark, str(error)))
        return None, problems.found
    return load_calendar_text(text, file=str(path), lenient=lenient)


def _check_after(readings: list[_Reading], known: Mapping[PipelineId, Pipeline], *, is_whole: bool) -> None:
    by_id: dict[PipelineId, _Reading] = {}
    for each in readings:
        if each.pipeline is not None and each.pipeline.id:
            by_id.setdefault(each.pipeline.id, each)
    pipelines = {name: each.pipeline for name, each in by_id.items() if each.pipeline is not None}
    if not any(schedule.after for pipeline in pipelines.values() for schedule in pipeline.schedules):
        return
    for found in check_dependencies({**known, **pipelines}, of=pipelines if known else None, is_whole=is_whole):
        reading = by_id[found.pipeline]
        at = schedule_path(pipelines[found.pipeline], found.schedule, is_list=reading.has_list)
        meant = suggest(found.unknown, pipelines) if found.unknown else ""
        reading.problems.error((*at, *found.path), found.message, meant or found.hint)


def _check_together(readings: list[_Reading]) -> None:
    first: dict[str, _Reading] = {}
    sound: list[tuple[_Reading, Pipeline]] = []
    for reading in readings:
        if reading.pipeline is None or not reading.pipeline.id:
            continue
        earlier = first.setdefault(reading.pipeline.id, reading)
        if earlier is not reading:
            message = f"`{reading.pipeline.id}` is also the id of {earlier.problems.file}"
            reading.problems.error(("pipeline", "id"), message, "pipeline ids must differ")
        elif not reading.problems.has_errors:
            sound.append((reading, reading.pipeline))
    for owner, index, finding in lint_together([pipeline for _, pipeline in sound]):
        reading, pipeline = sound[owner]
        at = schedule_path(pipeline, index, is_list=reading.has_list)
        reading.problems.warning((*at, *finding.path), finding.message, finding.hint)
