"""Defines the shape of a pipeline file: its keys, their types and their purpose.

These models say what a file may look like. The other modules of `worker/config/` read what its texts mean (durations,
dates, zones, cron). `interlock schema` and editors show the descriptions. A key without a value (`rules:`) counts as
absent. Required keys are checked together with the meaning, where a better message is possible.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic.alias_generators import to_camel

from worker.jobs.specs import JOB_CONFIGS, JobConfig
from worker.probes.specs import PROBE_CONFIGS

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
# The members of the enums as literals, because the strict reader takes texts. A test keeps them equal.
CheckName: TypeAlias = Literal[
    "exists", "missing", "equals", "not_equals", "gt", "gte", "lt", "lte", "in", "between", "matches",
    "age_lt", "age_gt", "passes",
]  # fmt: skip
JobTypeName: TypeAlias = Literal[
    "glue", "emr", "emr-serverless", "step-function", "databricks", "airflow", "lambda", "http", "command"
]
ProbeTypeName: TypeAlias = Literal["http", "command", "s3", "glue-partition", "dynamodb-item", "sql"]
SCHEDULES_MAX = 32
PROBES_MAX = 32
AFTER_MAX = 32
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_YES = {"yes", "on", "y", "true"}
_NO = {"no", "off", "n", "false"}


def _read_flag(value: object) -> object:
    if isinstance(value, str) and value.lower() in _YES | _NO:
        return value.lower() in _YES
    return value


def _read_upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _kind(value: object) -> str:
    """Return the tag of the union member for a value; brackets distinguish tags from keys in error paths."""
    match value:
        case dict():
            return "<mapping>"
        case list():
            return "<list>"
        case int() | float() if not isinstance(value, bool):
            return "<number>"
        case _:
            return "<text>"


Flag: TypeAlias = Annotated[bool, BeforeValidator(_read_flag)]
Id: TypeAlias = Annotated[str, Field(pattern=ID_PATTERN)]
Texts: TypeAlias = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[list[str], Tag("<list>")],
    Discriminator(_kind),
]
DURATION_EXAMPLES: Final = ["1h", "90s", "1h30m", "7d"]
DurationText: TypeAlias = Annotated[str, Field(examples=DURATION_EXAMPLES)]
DateTexts: TypeAlias = Annotated[list[str], Field(examples=[["2026-12-25"]])]


class Section(BaseModel):
    """Section is a mapping in the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty_keys(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        members = cast("dict[str, object]", data)
        return {key: value for key, value in members.items() if value is not None or key == "value"}


class ArchetypeSection(Section):
    """The archetype that the file extended when it was resolved. Interlock writes it; it has no effect."""

    id: str = Field(default="", description="Id of the archetype.")
    hash: str = Field(default="", description="SHA-256 of the archetype's content.")


class PipelineSection(Section):
    """Identifies the pipeline: id, owner and description."""

    model_config = ConfigDict(json_schema_extra={"required": ["id"]})

    id: Id = Field(
        default="",
        description="Name of the pipeline; use the file's name without its extension.",
        examples=["orders-daily"],
    )
    owner: str = Field(default="", description="Team or person responsible; alerts can be routed by it.")
    description: str = Field(default="", description="What the pipeline does.")
    archetype: ArchetypeSection | None = Field(
        default=None, description="In resolved files: the archetype that the file extended. Interlock writes it."
    )


class RuleSection(Section):
    """One condition on one sensor."""

    model_config = ConfigDict(json_schema_extra={"required": ["key", "check"]})

    key: str = Field(default="", description="Key of the sensor, without a period.", examples=["orders-loaded"])
    check: CheckName = Field(default=cast("CheckName", ""), description="The comparison to make.")
    field: str | None = Field(
        default=None, description="Field of the sensor's data; use dots for nested fields (`stats.rows`)."
    )
    value: object = Field(default=None, description="Value to compare the field with; its type depends on `check`.")
    max_future_skew: DurationText = Field(
        default="5m", description="How far in the future a time may be for `age_lt` and `age_gt`."
    )


class AnyGroup(Section):
    """At least one of these must pass."""

    any: "list[RuleItem]" = Field(default_factory=list, description="Rules or groups.")


class AllGroup(Section):
    """All of these must pass."""

    all: "list[RuleItem]" = Field(default_factory=list, description="Rules or groups.")


class AtLeastGroup(Section):
    """At least this many of these must pass."""

    model_config = ConfigDict(json_schema_extra={"required": ["atLeast", "rules"]})

    at_least: int = Field(default=1, ge=1, le=1000, description="How many must pass.")
    rules: "list[RuleItem]" = Field(default_factory=list, description="Rules or groups.")


def _rule_form(value: object) -> str:
    keys = {key.lower() for key in cast("dict[str, object]", value)} if isinstance(value, dict) else set[str]()
    return next((f"<{form}>" for form in ("any", "all", "atleast") if form in keys), "<rule>")


RuleItem: TypeAlias = Annotated[
    Annotated[RuleSection, Tag("<rule>")]
    | Annotated[AnyGroup, Tag("<any>")]
    | Annotated[AllGroup, Tag("<all>")]
    | Annotated[AtLeastGroup, Tag("<atleast>")],
    Discriminator(_rule_form),
]


class TriggerSection(RuleSection):
    """The sensor condition that creates a run."""

    deadline: str = Field(
        default="", description="When to stop waiting for the trigger: `HH:MM` or `:MM`.", examples=["09:00"]
    )
    match: Literal["exact", "prefix"] = Field(
        default="exact", description="How to compare the sensor's key with `key`."
    )
    undated: Literal["once", "daily"] = Field(
        default="once",
        description="How to use a sensor without a date: `once`, or `daily` for the current day, every day.",
    )


class EvaluationSection(Section):
    """How long a run waits for its rules, and how often Interlock evaluates them."""

    window: DurationText = Field(default="1h", description="How long a run waits for its rules to pass.")
    interval: DurationText = Field(
        default="5m", description="How often to evaluate the rules even if no sensor changes."
    )
    reopen: Flag = Field(
        default=False, description="Whether late data reopens a run whose window ended before its rules passed."
    )


class ExclusionSection(Section):
    """Days on which no run is expected."""

    weekends: Flag = Field(default=False, description="Exclude Saturday and Sunday.")
    days: list[str] = Field(default_factory=list, description="Weekdays to exclude, by name.", examples=[["friday"]])
    dates: DateTexts = Field(default_factory=list, description="Dates to exclude, `YYYY-MM-DD`.")
    calendar: Texts = Field(
        default="", description="Calendar or calendars whose days to exclude.", examples=["us-federal"]
    )
    holidays: Texts = Field(default="", description="Older name of `calendar`.")


class IncludeSection(Section):
    """Irregular run days."""

    model_config = ConfigDict(json_schema_extra={"required": ["dates"]})

    dates: DateTexts = Field(default_factory=list, description="Dates to run on, `YYYY-MM-DD`.")


BusinessDay: TypeAlias = Annotated[
    Annotated[Literal["first", "last"], Tag("<text>")] | Annotated[int, Field(ge=-23, le=23), Tag("<number>")],
    Discriminator(_kind),
]
BusinessDays: TypeAlias = Annotated[
    Annotated[Literal["first", "last"], Tag("<text>")]
    | Annotated[int, Field(ge=-23, le=23), Tag("<number>")]
    | Annotated[list[BusinessDay], Tag("<list>")],
    Discriminator(_kind),
]

MisfireName: TypeAlias = Literal["skip", "latest", "all"]


class MisfireSection(Section):
    """How to handle cron times missed while no worker was running."""

    policy: MisfireName = Field(
        default="latest", description="Which of the missed cron times to run: none, the latest or all."
    )
    max_lateness: DurationText = Field(default="24h", description="Cron times older than this never run.")


class AfterItem(Section):
    """A pipeline whose runs must complete first."""

    model_config = ConfigDict(json_schema_extra={"required": ["pipeline"]})

    pipeline: Id = Field(default="", description="Pipeline to run after.", examples=["silver-orders"])
    schedule: str = Field(default="", description="One of its schedules. Default: its only one.")
    periods: Literal["same", "all", "latest", "previous"] | None = Field(
        default=None,
        description="Which of its periods: the same, all shorter ones inside ours, the latest up to ours, or the one "
        "before. Default: same, or all if its periods are shorter.",
    )
    require: Literal["completed", "ended"] = Field(
        default="completed", description="What its runs must have reached; with `ended` a failed run counts too."
    )
    within: DurationText = Field(
        default="", description="How far back `latest` may look. Default: 7d.", examples=["3d"]
    )
    at_least: int | None = Field(
        default=None, ge=1, le=400, description="With `all`: how many of the periods suffice. Default: every one."
    )
    on_rerun: Literal["rerun", "alert", "ignore"] = Field(
        default="rerun", description="What to do if its run completes again after ours has started."
    )


class ScheduleSection(Section):
    """When runs start, or are expected to."""

    cron: str = Field(
        default="",
        description="Cron expression with five fields; starts runs unless there is a trigger.",
        examples=["0 6 * * 1-5"],
    )
    timezone: str = Field(
        default="UTC", description="IANA time zone of `cron`, dates and times.", examples=["Europe/Berlin"]
    )
    trigger: TriggerSection | None = Field(default=None, description="The sensor condition that creates a run.")
    after: list[AfterItem] = Field(
        default_factory=list[AfterItem],
        max_length=AFTER_MAX,
        description="Pipelines that must have completed first; starts runs unless there is a trigger.",
    )
    grain: Literal["day", "hour", "minute"] | None = Field(
        default=None, description="The only kind of period that the schedule accepts. Default: what `cron` implies."
    )
    start: Literal["trigger", "cron", "both"] | None = Field(
        default=None, description="What starts runs. Default: trigger or `after` if there is one, else cron."
    )
    exclude: ExclusionSection | None = Field(default=None, description="Days to exclude.")
    include: IncludeSection | None = Field(default=None, description="Irregular dates to run on, instead of `cron`.")
    calendar: Texts = Field(default="", description="Calendar or calendars whose days to exclude.")
    business_days: BusinessDays | None = Field(
        default=None,
        description="Run only on these business days of the month: first, last, N, or -N from the end.",
        examples=["last"],
    )
    time: str = Field(default="", description="Expected start, `HH:MM`; a missed run is not reported before this time.")
    max_ahead: DurationText = Field(
        default="48h",
        description="How far in the future a period may begin. Raise it for forecasts: `720h`.",
        examples=["720h"],
    )
    evaluation: EvaluationSection = Field(
        default=EvaluationSection(), description="How long a run waits for its rules."
    )
    misfire: (
        Annotated[
            Annotated[MisfireName, Tag("<text>")] | Annotated[MisfireSection, Tag("<mapping>")], Discriminator(_kind)
        ]
        | None
    ) = Field(default=None, description="How to handle cron times missed while no worker was running. Default: latest.")


class SlaSection(Section):
    """When a run must have succeeded. A breached deadline is reported; it never stops a run."""

    deadline: str = Field(
        default="",
        description="`HH:MM`, or `:MM` for that minute of the hour after the period's hour.",
        examples=["08:00"],
    )
    expected_duration: DurationText = Field(
        default="", description="How long before the deadline to warn; with 0s only the breach is reported."
    )
    max_duration: DurationText = Field(
        default="", description="Deadline relative to the arrival of the first sensor; up to 24h."
    )
    evaluation_deadline: str = Field(
        default="",
        description="When the rules must hold, as in `deadline`. If they do not, Interlock reports what is missing.",
        examples=["05:00"],
    )
    max_evaluation: DurationText = Field(
        default="",
        description="The same, relative to the arrival of the first sensor, else to the run's creation; up to 24h.",
        examples=["45m"],
    )
    timezone: str = Field(default="", description="Time zone of the deadlines. Default: the schedule's.")
    critical: Flag = Field(default=False, description="No effect: every breach is an alert.")
    day_offset: int | None = Field(
        default=None,
        ge=-7,
        le=7,
        description="Days from the period's date to the deadlines. Default: 1 for `HH:MM` without cron, else 0.",
    )


class ScheduleItem(ScheduleSection):
    """One of several schedules of a pipeline."""

    model_config = ConfigDict(json_schema_extra={"required": ["id"]})

    id: Id = Field(default="", description="Name of the schedule, unique in the file.", examples=["nightly"])
    sla: SlaSection | None = Field(default=None, description="SLA of this schedule. Default: the file's.")


class AtLeast(Section):
    """At least this many rules."""

    at_least: int = Field(default=1, ge=1, le=1000, description="How many rules must pass.")


class ValidationSection(Section):
    """The trigger that creates a run, and the rules that must pass before the job starts."""

    trigger: Annotated[
        Annotated[Literal["ALL", "ANY"], BeforeValidator(_read_upper), Tag("<text>")]
        | Annotated[AtLeast, Tag("<mapping>")],
        Discriminator(_kind),
    ] = Field(default="ALL", description="How many of the rules must pass: ALL, ANY or {atLeast: N}.")
    rules: list[RuleItem] = Field(default_factory=list[RuleItem], description="Rules, and groups of rules.")


class JobSection(Section):
    """The job: where it runs and how its failures are handled."""

    model_config = ConfigDict(json_schema_extra={"required": ["type"]})

    type: JobTypeName = Field(default=cast("JobTypeName", ""), description="The target that runs the job.")
    config: dict[str, object] = Field(
        default_factory=dict[str, object], description="Configuration of the target; depends on `type`."
    )
    # In the order in which the Lambda edition reports them.
    max_retries: int = Field(default=0, ge=0, le=10, description="Retries after a transient failure or a timeout.")
    max_drift_reruns: int = Field(default=1, ge=0, le=5, description="Automatic reruns after late data or drift.")
    max_manual_reruns: int = Field(default=1, ge=0, le=5, description="Manual reruns.")
    max_code_retries: int = Field(default=1, ge=0, le=3, description="Retries after a permanent failure; 0 for none.")
    job_poll_window_seconds: int = Field(
        default=3600,
        ge=0,
        le=86400,
        description="How long a job may run before it is stopped: 60 to 86400; 0 means the default.",
    )
    poll_interval_seconds: int = Field(default=60, ge=1, le=3600, description="How often to poll the job.")
    run_timeout_seconds: int = Field(
        default=14400, ge=60, le=604800, description="Time limit of a whole run, all attempts together."
    )
    on_unknown_start: Literal["hold", "restart"] = Field(
        default="hold",
        description="If a target that recognises no repeat may have started the job: fail the run or start again.",
    )
    overlap: Literal["forbid", "allow"] = Field(
        default="forbid", description="Whether an attempt may start while the previous one may still be running."
    )


class ProbeSection(Section):
    """A question that Interlock asks about data whose producer does not report it."""

    model_config = ConfigDict(json_schema_extra={"required": ["key", "type"]})

    key: str = Field(
        default="", description="Name of the probe; rules, triggers and post-run rules use it like a sensor's key."
    )
    type: ProbeTypeName = Field(default=cast("ProbeTypeName", ""), description="What is asked.")
    config: dict[str, object] = Field(
        default_factory=dict[str, object], description="Configuration of the request; depends on `type`."
    )
    every: DurationText = Field(default="5m", description="How often to ask, at most: 1s or longer.")
    timeout: DurationText = Field(default="30s", description="Time limit of one request: 1s to 5m.")
    ttl: DurationText = Field(
        default="", description="How long a result is valid. Default: six times `every`.", examples=["30m"]
    )
    run: Literal["while-waiting", "always", "before-start"] = Field(
        default="while-waiting",
        description="When to ask: while a run waits, also without a run, or once more right before the job.",
    )
    json_path: Annotated[
        Annotated[str, Tag("<text>")] | Annotated[dict[str, str], Tag("<mapping>")],
        Discriminator(_kind),
    ] = Field(
        default="",
        description="Part of the response that is the result, as a dotted path; or a path for each field.",
        examples=["data.latest"],
    )
    active_hours: str = Field(
        default="",
        description="With `always`: the time of day in which to ask, in the zone of the schedule.",
        examples=["06:00-22:00"],
    )


class MonitorSection(Section):
    """How long to keep asking after a success."""

    model_config = ConfigDict(json_schema_extra={"required": ["for"]})

    lasts: DurationText = Field(default="", alias="for", description="How long after a success.", examples=["6h"])
    every: DurationText = Field(default="15m", description="How often to ask.")


class PostRunSection(Section):
    """What to watch after the job has ended."""

    rules: list[RuleItem] = Field(
        default_factory=list[RuleItem], description="Rules on the job's results; all must pass."
    )
    drift_field: str = Field(
        default="sensor_count", description="Numeric field to compare with its value when the job started."
    )
    drift_threshold: float = Field(default=0, ge=0, description="Drift is a change greater than this.")
    sensor_timeout: DurationText = Field(default="2h", description="How long to wait for the post-run sensors.")
    match: Literal["exact", "prefix"] = Field(
        default="exact", description="How to compare sensor keys with the rules' keys."
    )
    evaluation: EvaluationSection | None = Field(
        default=None, description="How long and how often to evaluate the post-run rules."
    )
    monitor: MonitorSection | None = Field(
        default=None, description="Keep asking the probes of the post-run rules after a success."
    )


class CalendarDate(Section):
    """A date with the name of the day."""

    model_config = ConfigDict(json_schema_extra={"required": ["date"]})

    date: str = Field(default="", description="`YYYY-MM-DD`.")
    name: str = Field(default="", description="Name of the day.", examples=["Independence Day"])


class CalendarBody(Section):
    """Days to exclude."""

    description: str = Field(default="", description="What the calendar is for.")
    days: list[str] = Field(default_factory=list, description="Weekday names.", examples=[["saturday", "sunday"]])
    dates: list[
        Annotated[
            Annotated[str, Tag("<text>")] | Annotated[CalendarDate, Tag("<mapping>")],
            Discriminator(_kind),
        ]
    ] = Field(default_factory=list, description="Dates, each `YYYY-MM-DD` or {date, name}.")


class CalendarFile(CalendarBody):
    """A calendar file."""

    model_config = ConfigDict(json_schema_extra={"required": ["name"]})

    name: str = Field(default="", description="The name by which pipelines refer to it.", examples=["us-federal"])


class ExtendsSection(Section):
    """The archetype whose parts a file takes over."""

    model_config = ConfigDict(json_schema_extra={"required": ["archetype"]})

    archetype: str = Field(default="", description="Id of a file in `archetypes/`.", examples=["hourly-ingest"])
    with_: dict[str, Any] = Field(
        default_factory=dict[str, Any], alias="with", description="Values of the archetype's parameters."
    )
    replace: list[str] = Field(
        default_factory=list[str],
        description="Parts that replace the archetype's instead of merging with it.",
        examples=[["validation.rules"]],
    )


class PipelineFile(Section):
    """A pipeline file: when the job may run, which rules must pass first, and what to watch afterwards."""

    # A file that extends an archetype may have its job from there.
    model_config = ConfigDict(
        json_schema_extra={"required": ["pipeline"], "anyOf": [{"required": ["job"]}, {"required": ["extends"]}]}
    )

    pipeline: PipelineSection = Field(default=PipelineSection(), description="Name and owner of the pipeline.")
    extends: ExtendsSection | None = Field(default=None, description="Archetype that the file builds on.")
    job: JobSection | None = Field(default=None, description="The job: where it runs and how its failures are handled.")
    schedule: ScheduleSection | None = Field(default=None, description="When runs start, or are expected to.")
    schedules: list[ScheduleItem] = Field(
        default_factory=list[ScheduleItem],
        max_length=SCHEDULES_MAX,
        description="Several schedules, instead of `schedule`.",
    )
    exclusions: ExclusionSection | None = Field(default=None, description="Days to exclude from every schedule.")
    calendars: dict[str, CalendarBody] = Field(
        default_factory=dict[str, CalendarBody],
        description="Calendars for this file only; they take precedence over calendar files.",
    )
    sla: SlaSection | None = Field(default=None, description="When runs must have succeeded.")
    validation: ValidationSection = Field(
        default=ValidationSection(), description="Rules that must pass before the job starts."
    )
    probes: list[ProbeSection] = Field(
        default_factory=list[ProbeSection],
        max_length=PROBES_MAX,
        description="What to ask about data whose producers report nothing.",
    )
    post_run: PostRunSection | None = Field(default=None, description="What to watch after the job has ended.")
    dry_run: Flag = Field(default=False, description="Evaluate rules and record what would start, but start nothing.")


FileModel: TypeAlias = type[PipelineFile] | type[CalendarFile]


def file_schema(model: FileModel = PipelineFile) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a kind of file."""
    schema = model.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    if model is PipelineFile:
        _describe_configs(schema["$defs"], "JobSection", JOB_CONFIGS)
        _describe_configs(schema["$defs"], "ProbeSection", PROBE_CONFIGS)
    return schema


def archetype_schema() -> dict[str, Any]:
    """Return the JSON Schema of archetypes: a pipeline file without an id, with `${name}` for values."""
    schema = file_schema()
    properties = schema["properties"]
    del properties["extends"]
    properties["archetype"] = _ARCHETYPE_HEADER
    schema["required"] = ["archetype"]
    schema["title"], schema["description"] = "ArchetypeFile", "Parts of pipeline files that many pipelines share."
    del schema["anyOf"]
    for definition in schema["$defs"].values():
        definition.pop("required", None)
        members = definition.get("properties", {})
        definition["properties"] = {name: _or_parameter(member) for name, member in members.items()}
    schema["$defs"]["PipelineSection"]["properties"].pop("id")
    return schema


def _or_parameter(member: dict[str, Any]) -> dict[str, Any]:
    """Allow a reference to a parameter where a value is expected; a text may have one anyway."""
    described = {name: member[name] for name in ("description", "title", "default", "examples") if name in member}
    rest = {name: value for name, value in member.items() if name not in described}
    return member if not rest else {**described, "anyOf": [rest, {"type": "string", "pattern": PARAMETER_PATTERN}]}


PARAMETER_PATTERN: Final = r"\$\{[a-z][A-Za-z0-9_]*\}"
_ARCHETYPE_HEADER: Final[dict[str, Any]] = {
    "type": "object",
    "description": "Name and parameters of the archetype.",
    "required": ["id"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "description": "The name that pipeline files extend."},
        "description": {"type": "string", "description": "What the archetype is for."},
        "parameters": {
            "type": "object",
            "maxProperties": 64,
            "propertyNames": {"pattern": "^[a-z][A-Za-z0-9_]{0,63}$"},
            "additionalProperties": {
                "type": "object",
                "required": ["type"],
                "additionalProperties": False,
                "properties": {
                    "type": {"enum": ["text", "number", "flag", "list"], "description": "What a value must be."},
                    "default": {"description": "The value if a pipeline gives none; without it, each must give one."},
                    "description": {"type": "string", "description": "What the parameter is for."},
                },
            },
        },
    },
}


def _describe_configs(definitions: dict[str, Any], section: str, configs: Mapping[Any, type[JobConfig]]) -> None:
    """Make `config` of a section depend on its `type` in the schema.

    Keys have other valid spellings, so unknown keys are allowed.
    """
    branches: list[Mapping[str, Any]] = []
    for kind, config in configs.items():
        body = config.model_json_schema(by_alias=True, ref_template="#/$defs/{model}")
        definitions.update(body.pop("$defs", {}))
        body.pop("additionalProperties", None)
        definitions[config.__name__] = body
        branch = {"properties": {"config": {"$ref": f"#/$defs/{config.__name__}"}}}
        branches.append({"if": {"properties": {"type": {"const": str(kind)}}}, "then": branch})
    definitions[section]["allOf"] = branches
