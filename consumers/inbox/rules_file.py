"""Read the inbox file: rules in YAML. All mistakes are reported at once with their location."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, cast

from pydantic import Field

from consumers.inbox.key_patterns import BadKeyPattern, KeyPattern, parse_key_pattern
from consumers.inbox.loops import find_loops
from consumers.inbox.notifications import S3
from consumers.inbox.rules import BucketPrefix, Collect, InboxRule, OfEvents, OfMessages, OfObjects, Rules, Source
from consumers.inbox.templates import TEXT_CHARS_MAX
from consumers.outbox.patterns import BadEventPattern, parse_pattern
from worker.config.documents import read_document
from worker.config.files import UnreadableFile, read_text
from worker.config.problems import Problem, Problems, advise, show
from worker.config.schema import DurationText, Id, Section
from worker.config.settings import INBOX
from worker.config.shape import read_shape
from worker.core.collect.collection import PARTS_MAX, Until
from worker.core.errors import ConfigError
from worker.core.model.templates import names, unclosed_names
from worker.core.model.values import Json
from worker.core.time.durations import format_duration, parse_duration
from worker.yaml.document import Path as At

RULES_MAX: Final = 200
PLACES_MAX: Final = 50
FIELDS_MAX: Final = 100
WAIT_MAX: Final = timedelta(days=30)
SOURCES: Final = ("object", "event", "message")
OF_OBJECTS: Final = ("bucket", "key", "event", "etag", "size", "version", "at")
OF_EVENTS: Final = ("id", "source", "detail-type", "time", "account", "region", "resources", "detail", "version")

_Text: TypeAlias = Annotated[str, Field(max_length=TEXT_CHARS_MAX)]
_Prefixes: TypeAlias = Annotated[list[_Text], Field(max_length=PLACES_MAX)]
_Any: TypeAlias = object


class ObjectSection(Section):
    """Describes objects of a bucket, whichever path their notification took."""

    bucket: _Text = Field(default="", description="Name of the bucket.")
    key: _Text = Field(default="**", description="Pattern of the object's key.", examples=["orders/${date}/*.csv"])
    unless: _Prefixes = Field(default_factory=list, description="Keys that begin so are not meant.")
    deletes: Literal["ignore", "report"] = Field(default="ignore", description="What the end of an object is.")


class UntilSection(Section):
    """Says when the objects of a period are complete: as soon as any of these holds."""

    object: _Text = Field(default="", description="Key of the object that the producer writes last.")
    manifest: _Text = Field(default="", description="Key of the JSON object that lists all parts.")
    count: Annotated[int, Field(ge=1, le=PARTS_MAX)] | None = Field(default=None, description="Number of parts.")
    quiet: DurationText = Field(default="", description="How long no part arrived.", examples=["10m"])


class CollectSection(Section):
    """Collects all objects of a period into one sensor."""

    until: UntilSection = Field(default_factory=UntilSection, description="When they are complete.")
    settle: DurationText = Field(default="5s", description="How long to wait for parts after `until.object`.")
    latest: DurationText = Field(default="", description="How long after the first object to give up.", examples=["6h"])


class InboxRuleSection(Section):
    """Describes one kind of notification and its sensor."""

    name: Id = Field(default="", description="Name of the rule; the ledger of objects goes by it.")
    object: ObjectSection | None = Field(default=None, description="For objects in S3.")
    event: dict[str, _Any] | None = Field(default=None, description="For events of a bus: a pattern of EventBridge.")
    message: dict[str, _Any] | None = Field(default=None, description="For any other JSON: such a pattern of its own.")
    pipeline: _Text = Field(default="", description="The pipeline whose sensor it is.")
    sensor: _Text = Field(default="", description="The sensor's key, without a period.")
    period: _Text = Field(default="", description="The period it is about.", examples=["${date}"])
    fields: Annotated[dict[str, _Any], Field(max_length=FIELDS_MAX)] | None = Field(
        default=None, description="Fields of the sensor; all that is known, if absent."
    )
    writes: _Prefixes = Field(
        default_factory=list, description="Where the pipeline writes to.", examples=[["s3://landing/curated/"]]
    )
    collect: CollectSection | None = Field(default=None, description="One sensor for all objects of a period.")
    archive: _Text = Field(default="", description="Where to move the objects of a completed run.")


class InboxFile(Section):
    rules: list[InboxRuleSection] = Field(default_factory=list[InboxRuleSection], max_length=RULES_MAX)


def rules_from(said: str) -> Rules:
    """Read the rules from a setting: a path, or the text itself, because containers have no files.

    Raises `ConfigError`.
    """
    if not said:
        raise ConfigError(
            f"an inbox needs rules, and there are none; name their file with --rules, or it or their text in {INBOX}"
        )
    if "\n" in said or ":" in said:
        return rules_of(said, INBOX)
    return rules_in(Path(said))


def rules_in(path: Path) -> Rules:
    """Read the inbox file. Raises `ConfigError` with every problem in it and its location."""
    try:
        text = read_text(path)
    except UnreadableFile as error:
        raise ConfigError(f"the inbox file {path} {error}; name another with {INBOX}") from error
    return rules_of(text, str(path))


def rules_of(text: str, file: str = "<text>") -> Rules:
    rules, problems = check_rules(text, file)
    if rules is None:
        raise ConfigError("the inbox rules are wrong:\n" + "\n".join(str(problem) for problem in problems))
    return rules


def check_rules(text: str, file: str) -> tuple[Rules | None, tuple[Problem, ...]]:
    """Return the rules, or None if there is an error, and all errors and warnings."""
    document, problems = read_document(text, file)
    model = None if document is None else read_shape(InboxFile, document.value, problems)
    rules = [] if model is None else _rules(model, problems)
    if rules and not problems.has_errors:
        _check_loops(rules, problems)
    return (None if problems.has_errors else rules), problems.found


def _rules(model: InboxFile, problems: Problems) -> list[InboxRule]:
    if not model.rules:
        problems.error(("rules",), "is required: an inbox without rules makes nothing of any message")
    taken: set[str] = set()
    rules: list[InboxRule] = []
    for number, section in enumerate(model.rules):
        rule = _Reading(section, ("rules", number), problems).rule()
        if rule.name in taken:
            problems.error(("rules", number, "name"), f"`{rule.name}` is the name of an earlier rule too")
        taken.add(rule.name)
        rules.append(rule)
    return rules


def _check_loops(rules: Rules, problems: Problems) -> None:
    for loop in find_loops(rules):
        heard = loop.steps[-1].rule
        kind = "object" if isinstance(rules[heard].source, OfObjects) else "event"
        problems.error(
            ("rules", heard, kind),
            f"this is a loop, in which a pipeline starts itself: {loop}",
            "name the place in `unless`, or narrow what the rule matches",
        )


_NOT_READ: Final = OfObjects(bucket="", key=parse_key_pattern("**"))


class _Reading:
    """Reads one rule from its section. It reports invalid parts and uses a harmless value instead."""

    def __init__(self, section: InboxRuleSection, at: At, problems: Problems) -> None:
        self._section, self._at, self._problems = section, at, problems

    def rule(self) -> InboxRule:
        section = self._section
        for name in ("name", "pipeline", "sensor"):
            if not getattr(section, name):
                self._error((name,), "is required")
        source = self._source()
        self._check_texts(source)
        return InboxRule(
            name=section.name,
            source=source,
            pipeline=section.pipeline,
            sensor=section.sensor,
            period=section.period,
            fields=None if section.fields is None else cast("Mapping[str, Json]", section.fields),
            writes=tuple(self._place(("writes", number), text) for number, text in enumerate(section.writes)),
            collect=None if section.collect is None else self._collect(section.collect, source),
            archive=self._archive(section.archive, source) if section.archive else None,
        )

    def _error(self, path: At, message: str, hint: str = "") -> None:
        self._problems.error((*self._at, *path), message, hint)

    # --- Source -------------------------------------------------------------------------------------------------------

    def _source(self) -> Source:
        section = self._section
        given = [name for name in SOURCES if getattr(section, name) is not None]
        if any(self._problems.is_broken((*self._at, name)) for name in SOURCES):
            return _NOT_READ  # its problem is reported already
        if len(given) != 1:
            found = f"found {' and '.join(given)}" if given else "found none"
            self._error((), f"must have exactly one of object, event and message; {found}")
            return _NOT_READ
        if section.object is not None:
            return self._objects(section.object)
        pattern = cast("Json", section.event if section.event is not None else section.message)
        try:
            parsed = parse_pattern(pattern)
        except BadEventPattern as error:
            where = tuple(part for part in error.where.split(".") if part)
            self._error((given[0], *where), error.problem)
            return _NOT_READ
        if section.event is None:
            return OfMessages(parsed)
        if S3 in (sources if isinstance(sources := section.event.get("source"), list) else []):
            self._error(
                ("event", "source"),
                f"events of {S3} about objects are handled as notifications",
                "use `object` instead",
            )
        return OfEvents(parsed)

    def _objects(self, section: ObjectSection) -> Source:
        if not section.bucket:
            self._error(("object", "bucket"), "is required: the name of the bucket")
        try:
            key = parse_key_pattern(section.key)
        except BadKeyPattern as error:
            self._error(("object", "key"), str(error))
            return _NOT_READ
        hidden = sorted(key.names & set(OF_OBJECTS))
        if hidden:
            self._error(("object", "key"), f"`${{{hidden[0]}}}` is a name that every object has", "call it otherwise")
        return OfObjects(
            bucket=section.bucket,
            key=key,
            unless=tuple(prefix for prefix in section.unless if prefix),
            tells_deletes=section.deletes == "report",
        )

    def _place(self, path: At, text: str) -> BucketPrefix:
        bucket, _, prefix = text.removeprefix("s3://").partition("/")
        if not text.startswith("s3://") or not bucket:
            self._error(path, f"must be like s3://bucket/prefix/; found {show(text)}")
        return BucketPrefix(bucket=bucket, prefix=prefix)

    # --- Collect ------------------------------------------------------------------------------------------------------

    def _collect(self, section: CollectSection, source: Source) -> Collect | None:
        if not isinstance(source, OfObjects):
            self._error(("collect",), "collects objects, so the rule must have `object`")
            return None
        if self._section.fields is not None:
            self._error(("fields",), "has no effect with `collect`, which defines the fields", "remove it")
        if not self._section.period:
            self._error(("period",), "is required with `collect`: it says which objects belong together")
        until, at = section.until, ("collect", "until")
        marker, manifest = (self._pattern((*at, name), getattr(until, name)) for name in ("object", "manifest"))
        quiet = self._duration((*at, "quiet"), until.quiet)
        is_given = until.object or until.manifest or until.count or until.quiet
        if not is_given and not self._problems.is_broken((*self._at, *at, "count")):
            self._error(at, "needs at least one of object, manifest, count and quiet")
        return Collect(
            until=Until(
                count=until.count,
                has_marker=marker is not None,
                has_manifest=manifest is not None,
                quiet=quiet,
                settle=self._duration(("collect", "settle"), section.settle) or timedelta(),
                latest=self._duration(("collect", "latest"), section.latest),
            ),
            marker=marker,
            manifest=manifest,
        )

    def _archive(self, text: str, source: Source) -> BucketPrefix:
        place = self._place(("archive",), text)
        if self._section.collect is None:
            self._error(("archive",), "needs `collect`, which knows the objects of a run", "add `collect`")
        elif not place.prefix.endswith("/"):
            self._error(("archive",), f"must end with a slash, like s3://bucket/done/; found {show(text)}")
        elif isinstance(source, OfObjects) and source.tells_deletes:
            self._error(("archive",), "deletes objects, so `deletes: report` would report its own work")
        elif isinstance(source, OfObjects) and source.may_be_in(place):
            self._error(("archive",), "is a place where the rule finds objects", "use another, or name it in `unless`")
        return place

    def _pattern(self, path: At, text: str) -> KeyPattern | None:
        """Read the key of a marker or manifest. What names the sensor must be in it too."""
        if not text:
            return None
        try:
            pattern = parse_key_pattern(text)
        except BadKeyPattern as error:
            self._error(path, str(error))
            return None
        for name in ("pipeline", "sensor", "period"):
            for used in names(getattr(self._section, name)):
                if used not in {*OF_OBJECTS, *pattern.names}:
                    self._error(path, f"has no `${{{used}}}`, which `{name}` uses", "use it in the key, or not at all")
        return pattern

    def _duration(self, path: At, text: str) -> timedelta | None:
        if not text:
            return None
        found = parse_duration(text)
        if found is None or not timedelta() <= found <= WAIT_MAX:
            self._error(path, f"must be a duration between 0s and {format_duration(WAIT_MAX)}; found {show(text)}")
            return None
        return found

    # --- Texts --------------------------------------------------------------------------------------------------------

    def _check_texts(self, source: Source) -> None:
        section = self._section
        texts: dict[At, object] = {(name,): getattr(section, name) for name in ("pipeline", "sensor", "period")}
        texts |= {("fields", name): value for name, value in (section.fields or {}).items()}
        for path, text in texts.items():
            if isinstance(text, str):
                self._check_text(path, text, source)

    def _check_text(self, path: At, text: str, source: Source) -> None:
        for name in unclosed_names(text):
            self._error(path, f"`${{{name}` is never closed", f"write ${{{name}}}, or $${{ for a literal ${{")
        for name in names(text):
            known = _known_names(source)
            # The sender defines the detail of an event, so only the names at the top level are known.
            said = name.partition(".")[0] if isinstance(source, OfEvents) else name
            if known and said not in known:
                self._error(path, f"`${{{name}}}` stands for nothing here", advise(name, sorted(known)))


def _known_names(source: Source) -> set[str]:
    """Return the names that texts may use; empty if they are not known."""
    match source:
        case OfObjects() if source is _NOT_READ:
            return set()
        case OfObjects():
            return {*OF_OBJECTS, *source.key.names}
        case OfEvents():
            return set(OF_EVENTS)
        case OfMessages():
            return set()
