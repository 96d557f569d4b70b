"""Defines the shape of a pipeline file: its keys, their types and their purpose.

These models say what a file may look like. The other modules of `worker/config/` read what its texts mean (durations,
dates, zones, cron). `interlock schema` and editors show the descriptions. A key without a value (`rules:`) counts as
absent. Required keys are checked together with the meaning, where a better message is possible.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic.alias_generators import to_camel

from worker.jobs.specs import JOB_CONFIGS

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
# The members of the enums as literals, because the strict reader takes texts. A test keeps them equal.
CheckName: TypeAlias = Literal[
    "exists", "missing", "equals", "not_equals", "gt", "gte", "lt", "lte", "in", "between", "matches",
    "age_lt", "age_gt",
]  # fmt: skip
JobTypeName: TypeAlias = Literal[
    "glue", "emr", "emr-serverless", "step-function", "databricks", "airflow", "lambda", "http", "command"
]
SCHEDULES_MAX = 32
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
DURATION_EXAMPLES: Final = ["1h", "90s", "1h30m"]
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


class PipelineSection(Section):
    """Who this pipeline is."""

    model_config = ConfigDict(json_schema_extra={"required": ["id"]})

    id: Id = Field(
        default="", description="Name of the pipeline; keep it equal to the file name.", examples=["orders-daily"]
    )
    owner: str = Field(default="", description="Team or person to ask.")
    description: str = Field(default="", description="What the pipeline does.")


class RuleSection(Section):
    """One condition on one sensor."""

    model_config = ConfigDict(json_schema_extra={"required": ["key", "check"]})

    key: str = Field(default="", description="Key of the sensor, without a period.", examples=["orders-loaded"])
    check: CheckName = Field(default=cast("CheckName", ""), description="What must be true of the field.")
    field: str | None = Field(default=None, description="Field of the sensor's data; dots go deeper (`stats.rows`).")
    value: object = Field(default=None, description="What the field is compared with; its kind depends on `check`.")
    max_future_skew: DurationText = Field(
        default="5m", description="How far in the future a time may be for `age_lt`/`age_gt`."
    )


class AnyGroup(Section):
    """At least one of these holds."""

    any: "list[RuleItem]" = Field(default_factory=list, description="Rules or groups.")


class AllGroup(Section):
    """All of these hold."""

    all: "list[RuleItem]" = Field(default_factory=list, description="Rules or groups.")


class AtLeastGroup(Section):
    """At least so many of these hold."""

    model_config = ConfigDict(json_schema_extra={"required": ["atLeast", "rules"]})

    at_least: int = Field(default=1, ge=1, le=1000, description="How many must hold.")
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
    """The sensor condition that starts a run."""

    deadline: str = Field(
        default="", description="When to stop waiting for the trigger: `HH:MM` or `:MM`.", examples=["09:00"]
    )
    match: Literal["exact", "prefix"] = Field(
        default="exact", description="How the sensor's key is compared with `key`."
    )
    undated: Literal["once", "daily"] = Field(
        default="once", description="A sensor without any date: used up once, or meaning today, every day again."
    )


class EvaluationSection(Section):
    """How long a run waits for its rules."""

    window: DurationText = Field(default="1h", description="How long the rules may take to hold.")
    interval: DurationText = Field(default="5m", description="Safety net: rules are also evaluated this often.")
    reopen: Flag = Field(
        default=False, description="Late data reopens a run whose window ended without its rules holding."
    )


class ExclusionSection(Section):
    """Days on which nothing is expected to run."""

    weekends: Flag = Field(default=False, description="Leave out Saturday and Sunday.")
    days: list[str] = Field(default_factory=list, description="Weekday names to leave out.", examples=[["friday"]])
    dates: DateTexts = Field(default_factory=list, description="Dates to leave out, `YYYY-MM-DD`.")
    calendar: Texts = Field(
        default="", description="Calendar or calendars whose days are left out.", examples=["us-federal"]
    )
    holidays: Texts = Field(default="", description="The same as `calendar`, under the name older files use.")


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
    """What becomes of cron times that passed while nobody was there."""

    policy: MisfireName = Field(default="latest", description="Make up for none, the latest or all of them.")
    max_lateness: DurationText = Field(default="24h", description="Times further back than this are never made up for.")


class ScheduleSection(Section):
    """When runs start, or are expected to."""

    cron: str = Field(
        default="", description="Five fields; starts runs unless there is a trigger.", examples=["0 6 * * 1-5"]
    )
    timezone: str = Field(
        default="UTC", description="IANA zone of `cron`, dates and times.", examples=["Europe/Berlin"]
    )
    trigger: TriggerSection | None = Field(default=None, description="The sensor condition that starts a run.")
    start: Literal["trigger", "cron", "both"] | None = Field(
        default=None, description="What starts runs. Default: the trigger if there is one, else cron."
    )
    exclude: ExclusionSection | None = Field(default=None, description="Days to leave out.")
    include: IncludeSection | None = Field(default=None, description="Irregular run days, instead of `cron`.")
    calendar: Texts = Field(default="", description="Calendar or calendars whose days are left out.")
    business_days: BusinessDays | None = Field(
        default=None,
        description="Only these business days of the month: first, last, N, or -N from the end.",
        examples=["last"],
    )
    time: str = Field(default="", description="Expected start, `HH:MM`; a missed run is reported no earlier.")
    max_ahead: DurationText = Field(
        default="48h",
        description="How far from now a period may begin. Raise it for forecasts: `720h`.",
        examples=["720h"],
    )
    evaluation: EvaluationSection = Field(default=EvaluationSection(), description="How long a run waits.")
    misfire: (
        Annotated[
            Annotated[MisfireName, Tag("<text>")] | Annotated[MisfireSection, Tag("<mapping>")], Discriminator(_kind)
        ]
        | None
    ) = Field(
        default=None, description="What becomes of cron times that passed while nobody was there. Default: latest."
    )


class SlaSection(Section):
    """By when a run must have succeeded. It observes; it never stops a run."""

    deadline: str = Field(
        default="", description="`HH:MM`, or `:MM` of the hour after the period's.", examples=["08:00"]
    )
    expected_duration: DurationText = Field(
        default="", description="The warning comes this long before the deadline; with 0s there is only the breach."
    )
    max_duration: DurationText = Field(
        default="", description="At most this long after the first sensor arrived; up to 24h."
    )
    timezone: str = Field(default="", description="Zone of `deadline`. Default: the schedule's.")
    critical: Flag = Field(default=False, description="Has no effect: every breach is an alert.")
    day_offset: int | None = Field(
        default=None,
        ge=-7,
        le=7,
        description="Days from the period's date to the deadline. Default: 1 for `HH:MM` without cron, else 0.",
    )


class ScheduleItem(ScheduleSection):
    """One of several schedules of a pipeline."""

    model_config = ConfigDict(json_schema_extra={"required": ["id"]})

    id: Id = Field(default="", description="Name of the schedule, unique in the file.", examples=["nightly"])
    sla: SlaSection | None = Field(default=None, description="The SLA of this schedule. Default: the file's.")


class AtLeast(Section):
    """At least so many rules."""

    at_least: int = Field(default=1, ge=1, le=1000, description="How many rules must hold.")


class ValidationSection(Section):
    """What must be true before the job starts."""

    trigger: Annotated[
        Annotated[Literal["ALL", "ANY"], BeforeValidator(_read_upper), Tag("<text>")]
        | Annotated[AtLeast, Tag("<mapping>")],
        Discriminator(_kind),
    ] = Field(default="ALL", description="How many of the rules must hold: ALL, ANY or {atLeast: N}.")
    rules: list[RuleItem] = Field(default_factory=list[RuleItem], description="Rules, and groups of rules.")


class JobSection(Section):
    """The work itself: where it runs and how its failures are treated."""

    model_config = ConfigDict(json_schema_extra={"required": ["type"]})

    type: JobTypeName = Field(default=cast("JobTypeName", ""), description="The target that runs the job.")
    config: dict[str, object] = Field(
        default_factory=dict[str, object], description="What the target needs; depends on `type`."
    )
    # In the order in which the Lambda edition reports them.
    max_retries: int = Field(default=0, ge=0, le=10, description="Retries after a transient failure or a time-out.")
    max_drift_reruns: int = Field(default=1, ge=0, le=5, description="Reruns after data drifted.")
    max_manual_reruns: int = Field(default=1, ge=0, le=5, description="Reruns that people may ask for.")
    max_code_retries: int = Field(default=1, ge=0, le=3, description="Retries after a permanent failure; 0 for none.")
    job_poll_window_seconds: int = Field(
        default=3600,
        ge=0,
        le=86400,
        description="How long a job may run before it is stopped: 60 to 86400; 0 for the default.",
    )
    poll_interval_seconds: int = Field(
        default=60, ge=1, le=3600, description="How often the job's status is asked for."
    )
    run_timeout_seconds: int = Field(
        default=14400, ge=60, le=604800, description="Limit of a whole run, all attempts together."
    )
    on_unknown_start: Literal["hold", "restart"] = Field(
        default="hold", description="When a target that cannot recognise a repeat may or may not have started the job."
    )
    overlap: Literal["forbid", "allow"] = Field(
        default="forbid", description="May an attempt start while the last one may still be running?"
    )


class PostRunSection(Section):
    """What is watched after the job is done."""

    rules: list[RuleItem] = Field(
        default_factory=list[RuleItem], description="Rules on the data produced; all must hold."
    )
    drift_field: str = Field(
        default="sensor_count", description="Numeric field compared with what the job was started on."
    )
    drift_threshold: float = Field(default=0, ge=0, description="Drift is a change greater than this.")
    sensor_timeout: DurationText = Field(default="2h", description="How long to wait for the post-run sensors.")
    match: Literal["exact", "prefix"] = Field(
        default="exact", description="How sensor keys are compared with the rules' keys."
    )
    evaluation: EvaluationSection | None = Field(
        default=None, description="How long and how often post-run rules are evaluated."
    )


class CalendarDate(Section):
    """A date with the name of the day."""

    model_config = ConfigDict(json_schema_extra={"required": ["date"]})

    date: str = Field(default="", description="`YYYY-MM-DD`.")
    name: str = Field(default="", description="What day it is.", examples=["Independence Day"])


class CalendarBody(Section):
    """Days on which work rests."""

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


class PipelineFile(Section):
    """A pipeline file: when the job may run, what must be true first, and what is watched afterwards."""

    model_config = ConfigDict(json_schema_extra={"required": ["pipeline", "job"]})

    pipeline: PipelineSection = Field(default=PipelineSection(), description="Its name, and who to ask.")
    job: JobSection | None = Field(default=None, description="The work itself.")
    schedule: ScheduleSection | None = Field(default=None, description="When runs start, or are expected to.")
    schedules: list[ScheduleItem] = Field(
        default_factory=list[ScheduleItem],
        max_length=SCHEDULES_MAX,
        description="Several schedules, instead of `schedule`.",
    )
    exclusions: ExclusionSection | None = Field(default=None, description="Days to leave out of every schedule.")
    calendars: dict[str, CalendarBody] = Field(
        default_factory=dict[str, CalendarBody],
        description="Calendars of this file alone; they come before calendar files.",
    )
    sla: SlaSection | None = Field(default=None, description="By when runs must have succeeded.")
    validation: ValidationSection = Field(default=ValidationSection(), description="What must be true first.")
    post_run: PostRunSection | None = Field(default=None, description="What is watched after the job is done.")
    dry_run: Flag = Field(
        default=False, description="Observe only: say what would have been started, and start nothing."
    )


FileModel: TypeAlias = type[PipelineFile] | type[CalendarFile]


def file_schema(model: FileModel = PipelineFile) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a kind of file."""
    schema = model.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    if model is PipelineFile:
        _describe_job_configs(schema["$defs"])
    return schema


def _describe_job_configs(definitions: dict[str, Any]) -> None:
    """Make `job.config` depend on `job.type` in the schema.

    Keys have other valid spellings, so unknown keys are allowed.
    """
    branches: list[Mapping[str, Any]] = []
    for job_type, config in JOB_CONFIGS.items():
        body = config.model_json_schema(by_alias=True, ref_template="#/$defs/{model}")
        definitions.update(body.pop("$defs", {}))
        body.pop("additionalProperties", None)
        definitions[config.__name__] = body
        branch = {"properties": {"config": {"$ref": f"#/$defs/{config.__name__}"}}}
        branches.append({"if": {"properties": {"type": {"const": job_type.value}}}, "then": branch})
    definitions["JobSection"]["allOf"] = branches
