"""Records: what `--json`, the HTTP API and the console show of each kind of object, in one shape.

A record is plain data. `as_json` gives its JSON: names in camelCase, times in RFC 3339 and UTC, a `type` on every
record. The classes are standard dataclasses, so a command loads no library for them. Pydantic (and so FastAPI) reads
them as they are: `__pydantic_config__` makes its names and documents equal to those of `as_json`.

Fields may be added; none changes its meaning or disappears within `VERSION`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal, TypeAlias, cast

from worker.core.model.values import Json
from worker.core.time.timestamps import format_rfc3339

VERSION: Final = 1

# Values that producers and jobs wrote: any JSON. `object`, because pydantic cannot read a recursive alias.
Data: TypeAlias = object


def camel_case(name: str) -> str:
    """Return the name of a field in JSON: `runId` for `run_id`."""
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


_NAMES: Final[dict[str, Any]] = {"alias_generator": camel_case, "populate_by_name": True, "serialize_by_alias": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReference:
    """A job at its target. `url` is where the target shows it, if known."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _NAMES

    type: str | None
    id: str | None
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt of a run. `outcome` is null while it is active."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _NAMES

    attempt: int
    token: str
    job: JobReference | None
    started_at: datetime | None
    ended_at: datetime | None
    outcome: str | None
    category: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineRecord:
    """The deadline of a run. `verdict` is `met`, `breached` or `waived`, and null while it is open."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _NAMES

    warning_at: datetime | None
    breach_at: datetime
    verdict: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRecord:
    """One input of a job. `data` is null if it is too large to keep; then `size` is its bytes."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _NAMES

    hash: str
    data: Mapping[str, Data] | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLinks:
    """Paths of a run below the public URL."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _NAMES

    page: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run: a pipeline, a schedule and a period.

    `state` is the stored value and `status` the word for people. `since` is when the run entered its state.
    `started_at` is when the job of the current attempt was started, and `duration` how long that job took. `owner` is
    the owner of the pipeline. Until `monitored_until`, probes keep checking the results of a success. `summary` is
    how many records the job of the current attempt saw, processed, skipped and failed on, as it says. `inputs` and
    `outputs` are null unless they were requested and exist. A row that cannot be read has the state `UNREADABLE`, and
    `reason` says why.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _NAMES

    type: Literal["run"] = "run"
    pipeline: str
    schedule: str
    period: str
    run_id: str | None = None
    state: str
    status: str
    outcome: str | None = None
    since: datetime | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration: str | None = None
    attempt: int | None = None
    attempts: Sequence[AttemptRecord] = ()
    reason: str = ""
    waits_for: str | None = None
    owner: str | None = None
    config: str | None = None
    origin: str | None = None
    deadline: DeadlineRecord | None = None
    monitored_until: datetime | None = None
    summary: Mapping[str, int] | None = None
    inputs: Mapping[str, InputRecord] | None = None
    outputs: Mapping[str, Data] | None = None
    links: RunLinks


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInputsRecord:
    """The inputs of one run. `attempt` is the attempt whose job was started on them."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _NAMES

    type: Literal["inputs"] = "inputs"
    pipeline: str
    schedule: str
    period: str
    run_id: str | None
    attempt: int | None
    inputs: Mapping[str, InputRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """One event: a recorded fact about a run or a pipeline."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _NAMES

    type: Literal["event"] = "event"
    id: str
    event_type: str
    at: datetime
    pipeline: str
    schedule: str
    period: str
    message: str
    detail: Mapping[str, Data] = field(default_factory=dict[str, Data])


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRecord:
    """One pipeline as deployed. `errors` is not empty if its configuration cannot be used."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _NAMES

    type: Literal["pipeline"] = "pipeline"
    id: str
    owner: str | None = None
    description: str | None = None
    schedules: Sequence[str] = ()
    job: str | None = None
    config: str | None = None
    dry_run: bool = False
    paused: bool = False
    errors: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsRecord:
    """Counts of ended runs in one group. `group` has one member for each dimension that was requested.

    `success_rate` is the share of completed runs among those that completed or failed; null if there are none.
    Durations are of the last attempt's job; they are approximate to 10 %, and null if none is known. `deadlines_met`
    counts among `deadlines`, the runs whose deadline has a verdict.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _NAMES

    type: Literal["statistics"] = "statistics"
    group: Mapping[str, str]
    runs: int
    completed: int
    failed: int
    cancelled: int
    success_rate: float | None
    duration_p50: str | None
    duration_p90: str | None
    deadlines: int
    deadlines_met: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRecord:
    """The last record of every list. If `complete` is false, `next` is the cursor of the rest, if any."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _NAMES

    type: Literal["end"] = "end"
    count: int
    complete: bool
    next: str | None = None


Record: TypeAlias = (
    RunRecord | RunInputsRecord | EventRecord | PipelineRecord | StatisticsRecord | EndRecord | AttemptRecord
)


def as_json(record: Record) -> dict[str, Json]:
    """Return a record as JSON's types. Data of producers and jobs keeps its own names."""
    return cast("dict[str, Json]", _members(record))


@lru_cache(maxsize=64)  # one entry for each class above
def _named(kind: type[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((each.name, camel_case(each.name)) for each in fields(kind))


def _members(record: object) -> dict[str, object]:
    return {shown: _value(getattr(record, name)) for name, shown in _named(type(record))}


def _value(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, datetime):
        return format_rfc3339(value)
    if is_dataclass(value):
        return _members(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        return {name: _value(member) for name, member in members.items()}
    if isinstance(value, list | tuple):
        return [_value(member) for member in cast("Sequence[object]", value)]
    return value  # a decimal
