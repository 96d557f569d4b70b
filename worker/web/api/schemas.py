"""The shapes of the API's documents, from which its OpenAPI document is made."""

from datetime import date, datetime
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from worker.operations.records import PipelineRecord

REASON_MAX: Final = 500

T = TypeVar("T")


class ApiModel(BaseModel):
    """A document of the API: names in camelCase, no field that is not declared."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class FieldProblem(ApiModel):
    """What is wrong at one place of a request's content."""

    where: str
    what: str


class ProblemDocument(ApiModel):
    """An error (RFC 9457). `type` is one of a closed list; programs match on it."""

    type: str = Field(examples=["urn:interlock:problem:unknown-pipeline"])
    title: str
    status: int
    detail: str | None = None
    request_id: str | None = None
    errors: list[FieldProblem] | None = None


class ListPage(ApiModel, Generic[T]):
    """A page of a list. `next` is the cursor of the next page; null if `complete`."""

    items: list[T]
    count: int
    complete: bool
    next: str | None


class WorkerDocument(ApiModel):
    """A worker's session. `heardAt` is its last heartbeat."""

    type: Literal["session"]
    id: str
    state: str
    beat: int
    duties: list[str]
    heard_at: datetime | None


class LeaseDocument(ApiModel):
    """A lease. `plan` says what all workers plan to do with it, and why."""

    type: Literal["lease"]
    stream: str
    shard: str
    status: str
    holder: str | None
    epoch: int
    checkpoint: str | None
    done_up_to: datetime | None
    rate: float
    weight: float
    parents: list[str]
    children: list[str]
    wanted_by: str | None
    deaths: int
    plan: str


class SensorAccepted(ApiModel):
    """A sensor that was written. `readBy` names its pipelines; `warnings` say what looks mistaken."""

    type: Literal["sensor"]
    pipeline: str
    key: str
    read_by: list[str]
    warnings: list[str]


class SensorsAccepted(ApiModel):
    """Sensors that were written, in the order of the request."""

    items: list[SensorAccepted]
    count: int


class LedgerHolderDocument(ApiModel):
    """The attempt of a run that may save records."""

    run: str
    attempt: int


class LedgerDocument(ApiModel):
    """A record ledger. `heldBy` is the run that may save; null if none did yet."""

    type: Literal["ledger"]
    name: str
    records: int
    held_by: LedgerHolderDocument | None
    held_since: datetime | None
    saved_at: datetime | None


class LedgerRecordDocument(ApiModel):
    """A record, and the hash of the content that was processed last."""

    type: Literal["ledger-record"]
    id: str
    hash: str


class LedgerSaved(ApiModel):
    """How many records were saved or deleted, and how many were the same already."""

    saved: int
    unchanged: int
    deleted: int


class SensorDocument(ApiModel):
    """A sensor as it is stored."""

    type: Literal["sensor"]
    pipeline: str
    key: str
    data: dict[str, Any]


class ConditionDocument(ApiModel):
    """One condition of a gate: the value read, and the value needed."""

    subject: str
    passed: bool
    seen: Any
    wanted: str
    reason: str
    sensor: str | None
    changed_at: datetime | None
    changed_since_start: bool | None


class GateDocument(ApiModel):
    """One gate of a run. `changes` would pass it."""

    gate: str
    passage: Literal["open", "closed", "unknown"]
    status: Literal["passed", "blocked", "unknown"]
    sentence: str
    changes: list[str]
    conditions: list[ConditionDocument]


class ExplanationDocument(ApiModel):
    """Why a run runs or does not, and what would make it run."""

    type: Literal["explanation"]
    pipeline: str
    schedule: str
    period: str
    state: str | None
    status: str | None
    summary: str
    is_under_way: bool
    needed: list[str]
    gates: list[GateDocument]


class HistoryDocument(ApiModel):
    """Something that happened to a run. `at` is null if its record has no time."""

    type: Literal["history"]
    pipeline: str
    schedule: str
    period: str
    at: datetime | None
    source: str
    what: str
    status: str | None
    attempt: int | None
    message: str


class LineageRunDocument(ApiModel):
    """A run of a pipeline in a lineage."""

    schedule: str
    period: str
    status: str
    duration: str
    deadline: str


class LineageNodeDocument(ApiModel):
    """A pipeline in a lineage. `depth` is how many pipelines it runs after, one after the other."""

    pipeline: str
    depth: int
    runs: list[LineageRunDocument]


class LineageEdgeDocument(ApiModel):
    """One pipeline runs after another; `periods` says which of its periods it waits for."""

    upstream: str
    downstream: str
    periods: str


class LineageDocument(ApiModel):
    """Pipelines, upstreams first. `isCut` means that there are more; `unknown` do not exist."""

    nodes: list[LineageNodeDocument]
    edges: list[LineageEdgeDocument]
    unknown: list[str]
    is_cut: bool


class ExpectedRunDocument(ApiModel):
    """A run that the schedule expects. `excluded` says why it does not take place."""

    type: Literal["expectedRun"]
    pipeline: str
    schedule: str
    period: str
    day: date
    by: str
    at: datetime | None
    local: str | None
    zone: str
    warning_at: datetime | None
    breach_at: datetime | None
    evaluation_at: datetime | None
    trigger_deadline_at: datetime | None
    excluded: str | None
    note: str | None


class VersionDocument(ApiModel):
    """A version of a pipeline's configuration."""

    type: Literal["version"]
    pipeline: str
    hash: str
    in_force: bool
    kept_at: datetime | None


class RuleReportDocument(ApiModel):
    """What one rule required and found; parts that do not apply are left out."""

    holds: bool
    key: str | None = None
    field: str | None = None
    check: str | None = None
    required: str | None = None
    actual: str | None = None
    reason: str


class ReadinessDocument(ApiModel):
    """The last combined result of a schedule's rules. `rules` are at most 50 of `rulesTotal`."""

    type: Literal["readiness"]
    pipeline: str
    schedule: str
    period: str
    verdict: Literal["ready", "waiting"]
    changed_at: datetime
    attempt: int
    reason: str
    rules: list[RuleReportDocument]
    rules_total: int


class PipelineDetail(ApiModel):
    """A pipeline with its configuration in force, as a file has it."""

    pipeline: PipelineRecord
    configuration: dict[str, Any] | None


class DeadLetterDocument(ApiModel):
    """A record that could not be processed. `body` is what it holds, where one dead letter is shown."""

    type: Literal["deadletter"]
    source: str
    id: str
    at: datetime
    reason: str
    history: list[str]
    key: str | None
    body: dict[str, Any] | None = None


class DeadLetterSourceDocument(ApiModel):
    """A source of dead letters. `count` stops at 1,000; then `countIsExact` is false."""

    type: Literal["deadletterSource"]
    source: str
    count: int
    count_is_exact: bool
    oldest: datetime | None


class SummaryDocument(ApiModel):
    """How the installation is doing: active runs by status, workers alive, dead letters."""

    type: Literal["summary"]
    at: datetime
    version: str
    active: dict[str, int]
    active_total: int
    ended_today: dict[str, int]
    ended_today_is_complete: bool
    workers: int
    dead_letters: int
    dead_letters_is_exact: bool


class RunActionDocument(ApiModel):
    """A request about a run, and what will come of it as things stand."""

    type: Literal["rerun", "cancel", "replay", "cascade"]
    pipeline: str
    schedule: str
    period: str
    requested: bool
    prospect: Literal["accepted", "waits", "refused", "nothing"]
    expected: str
    remedy: str | None
    reason: str


class RunBelowDocument(ApiModel):
    """A run that follows a replay, because it depends on a replayed run."""

    pipeline: str
    schedule: str
    period: str


class ReplayDocument(ApiModel):
    """Reruns over a range of periods, one request each; with `downstream`, also the runs that follow them."""

    type: Literal["replays"]
    pipeline: str
    schedule: str
    requested: int
    items: list[RunActionDocument]
    below: list[RunBelowDocument] = Field(description="What follows with `downstream`, in the order of the runs.")
    below_complete: bool = Field(description="Whether `below` lists all; it lists at most 1,000.")


class PauseDocument(ApiModel):
    """A pause of a pipeline, or its end. `wasPaused` says whether one was in force before."""

    type: Literal["pause", "resume"]
    pipeline: str
    reason: str | None
    until: datetime | None
    was_paused: bool


class DeadLetterActionDocument(ApiModel):
    """A request about dead letters. `count` is how many it covers."""

    type: Literal["deadletterReplay", "deadletterDrop"]
    source: str
    id: str | None
    count: int
    expected: str


class NewsItemDocument(ApiModel):
    """Names of runs and pipelines that changed together. `many`: there are more than are named."""

    id: str
    runs: list[str]
    pipelines: list[str]
    counts: dict[str, int]
    many: bool


class NewsDocument(ApiModel):
    """What changed since an id. `last` is the id to continue after; `resync`: read everything again."""

    type: Literal["news"]
    last: str
    resync: bool
    items: list[NewsItemDocument]


# --- requests ---------------------------------------------------------------------------------------------------------

Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=REASON_MAX)]


class ReasonRequest(ApiModel):
    """Why; it is recorded."""

    reason: Reason


class RunActionBody(ReasonRequest):
    dry_run: bool = Field(default=False, description="Return the expected result, and request nothing.")


class RerunBody(RunActionBody):
    supersede: bool = Field(default=False, description="Stop the job of an active run first.")


class CancelBody(RunActionBody):
    waive_deadline: bool = Field(default=False, description="Stop watching its deadline, too.")


class PauseBody(ReasonRequest):
    until: str | None = Field(default=None, max_length=64, examples=["2h", "2027-03-23T06:00:00Z"])


class ReplayBody(RunActionBody):
    schedule: str | None = Field(default=None, max_length=64, description="Which one, where there are several.")
    first: str = Field(alias="from", max_length=32, examples=["2027-03-01"])
    last: str = Field(alias="to", max_length=32, examples=["2027-03-07"])
    downstream: bool = Field(default=False, description="Let all runs below follow, outside their budgets.")


class CascadeBody(RunActionBody):
    schedule: str | None = Field(default=None, max_length=64, description="Which one, where there are several.")
    period: str = Field(max_length=32, examples=["2027-03-22"])
