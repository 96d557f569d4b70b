"""Keys: the one place that writes and reads every key and index value.

All rows of a pipeline share the partition `PIPELINE#<id>`; the sort key begins with the kind of row. The spellings of
the Lambda edition are kept, so its producers and readers continue to work. A period never contains a `#`. Only parts
that never contain a `#` follow a part that may contain one (a schedule, a sensor key), so every key can be read back.

Reserved for row kinds of the older generation that are not needed yet: `READINESS`,
`REPLAY#<schedule>#<period>` and `LATE#<schedule>#<period>#<millis>#<id>` in a pipeline's partition.
"""

import hashlib
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import NewType

from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.time.periods import Period

SessionId = NewType("SessionId", str)

ACTIVE_BUCKETS = 64
STATUS_BUCKETS = 16

CONFIG = "CONFIG"
PAUSE = "PAUSE"
CONFIG_LOG = "CONFIGLOG"  # a partition key
PIPELINES = "PIPELINES"  # a partition key of the list index

SENSOR = "SENSOR#"
TRAIT = "TRAIT#"
TRIGGER = "TRIGGER#"
DRY_RUN = "DRY_RUN#"
SLA = "SLA#"
INPUTS = "INPUTS#"
OUTPUTS = "OUTPUTS#"
DELETED = "DELETED#"
READINESS = "READINESS#"
RERUN_REQUEST = "RERUN_REQUEST#"
HELD_BACK = "RERUN_REQUEST_HELD#"
HELD_CASCADE = "RERUN_REQUEST_CASCADE#"
TRIGGER_REQUEST = "RERUN_REQUEST_TRIGGER#"
REQUESTS = "RERUN_REQUEST"  # the common prefix of all four
CANCEL_REQUEST = "CANCEL_REQUEST#"
MARKER = "MARKER#"  # prefix of the partitions of cascade markers
JOB = "JOB#"
IDEMPOTENCY = "IDEMPOTENCY#"
SESSION = "W#"
LEASE = "L#"
SCHEDULE_MARK = "MARK#SCHEDULE#"
SHADOW = "SHADOW#"
PARKED = "P#"
REPLAY = "R#"

_PIPELINE = "PIPELINE#"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, order=True)
class RunKey:
    """Identifies a run: there is only ever one run for it."""

    pipeline: PipelineId
    schedule: ScheduleId
    period: Period

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.schedule}/{self.period}"


def run_key_of_name(name: str) -> RunKey | None:
    """Read back the text of a run key; None for any other text."""
    pipeline, _, rest = name.partition("/")
    schedule, _, suffix = rest.rpartition("/")
    period = Period.parse(suffix)
    if not pipeline or not schedule or period is None:
        return None
    return RunKey(PipelineId(pipeline), ScheduleId(schedule), period)


# --- time and hashes inside keys --------------------------------------------------------------------------------------


def millis(at: datetime) -> int:
    """Return whole milliseconds since 1970, rounded down.

    Uses integers, because a float is sometimes off by one.
    """
    return (at - _EPOCH) // _MILLISECOND


def millis_text(at: datetime) -> str:
    """Return thirteen digits, so that text order is time order (until the year 2286)."""
    return f"{millis(at):013d}"


def instant(of_millis: int) -> datetime:
    return _EPOCH + of_millis * _MILLISECOND


def bucket(text: str, buckets: int) -> int:
    """Return an evenly spread bucket for a text; the same in every process, unlike `hash()`."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % buckets


def place_of(key: RunKey) -> float:
    """Return a run's fixed place in any spread, from 0 up to 1, so that its interval is steady."""
    return bucket(str(key), 1000) / 1000


# --- a pipeline's partition -------------------------------------------------------------------------------------------


def pipeline_pk(pipeline: PipelineId | str) -> str:
    return f"{_PIPELINE}{pipeline}"


def pipeline_of(pk: str) -> PipelineId | None:
    return PipelineId(pk.removeprefix(_PIPELINE)) if pk.startswith(_PIPELINE) else None


def idempotency_sk(key: str) -> str:
    """Return the row that remembers a request by its sender's key, hashed: any text is allowed."""
    return f"{IDEMPOTENCY}{hashlib.sha256(key.encode()).hexdigest()}"


def config_version_sk(config_hash: str) -> str:
    return f"CONFIGVER#{config_hash}"


def sensor_sk(key: str) -> str:
    return f"{SENSOR}{key}"


def sensor_key_of(sk: str) -> str | None:
    return sk.removeprefix(SENSOR) if sk.startswith(SENSOR) else None


def trait_sk(name: str) -> str:
    """Return the row of a probe's result. The name is the probe's key, with its period if it has one."""
    return f"{TRAIT}{name}"


def trait_name_of(sk: str) -> str | None:
    return sk.removeprefix(TRAIT) if sk.startswith(TRAIT) else None


def trigger_sk(key: RunKey) -> str:
    return f"{TRIGGER}{key.schedule}#{key.period}"


def dry_run_sk(key: RunKey) -> str:
    return f"{DRY_RUN}{key.schedule}#{key.period}"


def sla_sk(key: RunKey) -> str:
    return f"{SLA}{key.schedule}#{key.period}"


def inputs_sk(key: RunKey) -> str:
    """Return the row of what the job of a run was started on."""
    return f"{INPUTS}{key.schedule}#{key.period}"


def outputs_sk(key: RunKey) -> str:
    """Return the row of what the job of a run returned."""
    return f"{OUTPUTS}{key.schedule}#{key.period}"


def readiness_sk(schedule: ScheduleId) -> str:
    """Return the row of the last combined result of a schedule's rules."""
    return f"{READINESS}{schedule}"


def deleted_sk(key: RunKey) -> str:
    """Return the row that says that a run was deleted, so that no old record creates it again."""
    return f"{DELETED}{key.schedule}#{key.period}"


def rerun_request_sk(key: RunKey) -> str:
    return f"{RERUN_REQUEST}{key.schedule}#{key.period}"


def trigger_request_sk(key: RunKey) -> str:
    return f"{TRIGGER_REQUEST}{key.schedule}#{key.period}"


def cancel_request_sk(key: RunKey) -> str:
    return f"{CANCEL_REQUEST}{key.schedule}#{key.period}"


def shadow_sk(sk: str) -> str:
    """Return where shadow mode keeps its own row of any kind, separate from the active system's rows."""
    return f"{SHADOW}{sk}"


class RowKind(StrEnum):
    """Lists the rows about one schedule and period, by the prefix of their sort key."""

    TRIGGER = TRIGGER
    DRY_RUN = DRY_RUN
    SLA = SLA
    RERUN_REQUEST = RERUN_REQUEST
    CANCEL_REQUEST = CANCEL_REQUEST
    TRIGGER_REQUEST = TRIGGER_REQUEST


@lru_cache(maxsize=256)  # the rows of an active run are read again and again; small, so that many runs cost no memory
def run_row_of(pk: str, sk: str) -> tuple[RowKind, RunKey] | None:
    """Read back the key of a row about one schedule and period; None for any other row."""
    pipeline = pipeline_of(pk)
    kind = next((kind for kind in RowKind if sk.startswith(kind)), None)
    if pipeline is None or kind is None:
        return None
    key = _run_key_of(pipeline, sk.removeprefix(kind))
    return None if key is None else (kind, key)


def held_back_sk(key: RunKey) -> str:
    """Return the key of a trigger sensor that a pause held back."""
    return f"{HELD_BACK}{key.schedule}#{key.period}"


def held_cascade_sk(key: RunKey) -> str:
    """Return the key of a cascade that a pause held back."""
    return f"{HELD_CASCADE}{key.schedule}#{key.period}"


def held_back_key_of(pk: str, sk: str) -> RunKey | None:
    """Read back the run that a pause held back, for either kind of row; None for any other row."""
    pipeline = pipeline_of(pk)
    kind = next((kind for kind in (HELD_BACK, HELD_CASCADE) if sk.startswith(kind)), None)
    if pipeline is None or kind is None:
        return None
    return _run_key_of(pipeline, sk.removeprefix(kind))


def _run_key_of(pipeline: PipelineId, name: str) -> RunKey | None:
    schedule, _, suffix = name.rpartition("#")
    period = Period.parse(suffix)
    return None if not schedule or period is None else RunKey(pipeline, ScheduleId(schedule), period)


# --- marks: what Interlock remembers, apart from the producers' rows --------------------------------------------------


def signal_mark_sk(sensor_key: str) -> str:
    """Return the mark of the last content of an undated sensor that triggered a run."""
    return f"MARK#SIGNAL#{sensor_key}"


def config_mark_sk() -> str:
    """Return the mark of the pipeline's configuration: the version in force, and the rejected text."""
    return "MARK#CONFIG"


CYCLE_MARK = "MARK#CYCLE#"


def cycle_mark_sk(rejected: PipelineId) -> str:
    """Return the mark of a configuration that was rejected because of a cycle through this pipeline."""
    return f"{CYCLE_MARK}{rejected}"


def deployed_mark_sk() -> str:
    """Return the mark of when the pipeline and its current text were deployed.

    It does not exist for a pipeline that is older than this installation.
    """
    return "MARK#DEPLOYED"


def schedule_mark_sk(schedule: ScheduleId) -> str:
    """Return the mark of how far the cron times of a schedule were handled."""
    return f"{SCHEDULE_MARK}{schedule}"


def first_arrival_mark_sk(key: RunKey) -> str:
    """Return the mark of when a run's first trigger sensor arrived: the start of a relative deadline."""
    return f"{arrival_mark_prefix(key.schedule)}{key.period}"


def arrival_mark_prefix(schedule: ScheduleId) -> str:
    return f"MARK#ARRIVAL#{schedule}#"


def baseline_mark_sk(key: RunKey) -> str:
    """Return the mark of the sensors' data when the job was started, which drift is measured against."""
    return f"MARK#BASELINE#{key.schedule}#{key.period}"


def told_mark_sk(event_type: str, key: RunKey, about: str = "") -> str:
    """Return the mark that an event which is emitted only once was emitted."""
    told = f"{event_type}-{about}" if about else event_type
    return f"MARK#TOLD#{told}#{key.schedule}#{key.period}"


def reported_mark_sk(key: RunKey, token: str) -> str:
    """Return the mark of an attempt whose job has reported its end."""
    return f"MARK#REPORTED#{key.schedule}#{key.period}#{token}"


def grain_mark_sk(schedule: ScheduleId, named: str) -> str:
    """Return the mark that a grain mismatch of the schedule's sensors was reported."""
    return f"MARK#GRAIN#{schedule}#{named}"


def told_up_to_mark_sk(event_type: str) -> str:
    """Return the mark up to when one summary reported what a pipeline missed."""
    return f"MARK#TOLDUPTO#{event_type}"


def loss_mark_sk(loss_id: str) -> str:
    """Return the mark that a loss of unread records was reported. It belongs to no pipeline's partition."""
    return f"MARK#LOSS#{loss_id}"


WATCHDOG_DEGRADED = "degraded"
WATCHDOG_LEDGER = "ledger"


def watchdog_mark_sk(name: str) -> str:
    """Return a mark of the watchdog's own state. It belongs to no pipeline's partition."""
    return f"MARK#WATCHDOG#{name}"


# --- cascade markers --------------------------------------------------------------------------------------------------


def marker_pk(pipeline: PipelineId) -> str:
    return f"{MARKER}{pipeline}"


# --- job log, reruns, events ------------------------------------------------------------------------------------------


def job_prefix(key: RunKey) -> str:
    return f"{JOB}{key.schedule}#{key.period}#"


def job_sk(key: RunKey, *, at: datetime, attempt: int, entry_id: str) -> str:
    """Return the Lambda edition's key, extended by what separates two entries of one millisecond.

    The milliseconds stay at their old place.
    """
    return f"{job_prefix(key)}{millis_text(at)}#{attempt}#{entry_id}"


@dataclass(frozen=True, slots=True)
class JobStamp:
    """Holds the end of a job log key; the Lambda edition's has the time only."""

    at: datetime
    attempt: int | None = None
    entry_id: str = ""


def job_stamp_of(key: RunKey, sk: str) -> JobStamp | None:
    parts = sk.removeprefix(job_prefix(key))
    at = stamp_of(parts)
    match parts.split("#"):
        case _ if at is None:
            return None
        case [_, attempt, entry_id] if attempt.isdecimal():
            return JobStamp(at, int(attempt), entry_id)
        case _:
            return JobStamp(at)


def rerun_prefix(key: RunKey) -> str:
    return f"RERUN#{key.schedule}#{key.period}#"


def rerun_sk(key: RunKey, number: int) -> str:
    return f"{rerun_prefix(key)}{number}"


def rerun_number_of(key: RunKey, sk: str) -> int | None:
    number = sk.removeprefix(rerun_prefix(key))
    return int(number) if number.isdecimal() else None


def stamped_sk(at: datetime, *parts: str) -> str:
    """Return a key in time order: for events (`<millis>#<type>#<id>`), the config log, dead letters."""
    return "#".join((millis_text(at), *parts))


def stamp_of(sk: str) -> datetime | None:
    """Return the time that a stamped key begins with; None if it is not one."""
    at = sk.partition("#")[0]
    return instant(int(at)) if len(at) == 13 and at.isdecimal() else None


def thread_sk(schedule: str, period: str) -> str:
    return f"THREAD#{schedule}#{period}"


def incident_thread_sk(incident: str) -> str:
    """Return the thread of an incident without a run. No schedule and period have the same key."""
    return f"THREAD#INCIDENT#{incident}"


def rate_pk(name: str) -> str:
    return f"RATE#{name}"


RATE = "RATE"
GROUPED_ALERTS = "GROUPEDALERTS"
GROUPED_TARGET_ALERTS = "GROUPEDALERTS#TARGETS"


def grouped_alert_prefix(channel: str, event_type: str = "") -> str:
    return f"{channel}|{event_type}|" if event_type else f"{channel}|"


def grouped_alert_sk(channel: str, event_type: str, at: datetime, event_id: str) -> str:
    """Return the key of an event that waits to be sent with others of its type, in time order."""
    return f"{grouped_alert_prefix(channel, event_type)}{millis_text(at)}|{event_id}"


def target_thread_sk(lane: str, subject: str) -> str:
    """Return the key of what one alert target knows of a run or an incident."""
    return f"THREAD#TARGET#{lane}#{subject}"


def target_alerts_pk(lane: str) -> str:
    return f"TARGETALERTS#{lane}"


def target_alert_sk(at: datetime, order: int, event_id: str) -> str:
    """Return the key of an alert that waits for its target, in the order in which alerts are to be sent."""
    return f"{millis_text(at)}|{order:09d}|{event_id}"


DEAD_LETTER_SOURCES = "DEADLETTERSOURCES"


def dead_letter_pk(source: str) -> str:
    return f"DEADLETTER#{source}"


def dead_letter_body_pk(source: str, letter_id: str) -> str:
    return f"DEADLETTERBODY#{source}#{letter_id}"


# --- daily rollups of ended runs --------------------------------------------------------------------------------------

ROLLUPS = "ROLLUPS"  # a partition key
STALE_ROLLUP = "STALE#"


def rollup_pk(day: date) -> str:
    return f"ROLLUP#{day.isoformat()}"


def rollup_sk(number: int) -> str:
    """Return the row that sums up one bucket of the day's lists."""
    return f"{number:02d}"


def rollup_view_pk(view: str) -> str:
    """Return the partition of one view, with a row for each day: a range of days is one query."""
    return f"ROLLUPVIEW#{view}"


def stale_rollup_sk(day: date, number: int) -> str:
    return f"{STALE_ROLLUP}{day.isoformat()}#{number:02d}"


def stale_rollup_of(sk: str) -> tuple[date, int] | None:
    day, _, number = sk.removeprefix(STALE_ROLLUP).partition("#")
    try:
        return (date.fromisoformat(day), int(number)) if sk.startswith(STALE_ROLLUP) else None
    except ValueError:
        return None


# --- the archive ------------------------------------------------------------------------------------------------------

ARCHIVE = "ARCHIVE"  # a partition key


def archive_sk(target: str) -> str:
    """Return the row of the progress of one archive, which its target's hash names."""
    return f"PROGRESS#{target}"


# --- bulk operations --------------------------------------------------------------------------------------------------

BULK = "BULK"
BULK_RUN = "RUN#"


def bulk_pk(bulk_id: str) -> str:
    return f"BULK#{bulk_id}"


def bulk_command_pk(digest: str) -> str:
    """Return the partition of the row that names the unfinished bulk operation of a command."""
    return f"BULK#COMMAND#{digest}"


def bulk_run_sk(key: RunKey) -> str:
    """Return the row of what a bulk operation did about one run."""
    return f"{BULK_RUN}{key.pipeline}#{key.schedule}#{key.period}"


# --- membership -------------------------------------------------------------------------------------------------------


def group_pk(group: str) -> str:
    return f"GROUP#{group}"


def hints_pk(group: str) -> str:
    """Return the partition of hints about jobs, one row for each worker that receives events."""
    return f"HINTS#{group}"


def session_sk(session: SessionId) -> str:
    return f"{SESSION}{session}"


def lease_sk(stream: str, shard: str) -> str:
    return f"{LEASE}{stream}#{shard}"


def lease_of(sk: str) -> tuple[str, str] | None:
    """Return stream and shard of a lease. A shard's name contains no `#`; a stream's may."""
    stream, _, shard = sk.removeprefix(LEASE).rpartition("#")
    return (stream, shard) if sk.startswith(LEASE) and stream else None


def parked_sk(stream: str, key_hash: str) -> str:
    return f"{PARKED}{stream}#{key_hash}"


def replay_sk(source: str, at: datetime, letter_id: str) -> str:
    return f"{REPLAY}{source}#{stamped_sk(at, letter_id)}"


# --- the sensor inbox -------------------------------------------------------------------------------------------------


def inbox_pk(bucket: str, object_key: str) -> str:
    """Return the partition of an object.

    It is a hash, because an object's key may be as long as a row key may be.
    """
    return f"INBOX#{hashlib.sha256(f'{bucket}/{object_key}'.encode()).hexdigest()[:32]}"


def inbox_ledger_sk(rule: str) -> str:
    """Return the row of what an inbox rule last wrote about an object."""
    return f"LEDGER#{rule}"


COLLECTION = "COLLECTION"
COLLECTION_PART = "PART#"
COLLECTION_CHECKS = "COLLECTION#CHECKS"  # a partition key: collections that time alone may complete


def collection_id(rule: str, pipeline: PipelineId, sensor_key: str) -> str:
    """Return what identifies the objects that a rule collects for one sensor; a hash, so it is short."""
    return hashlib.sha256(f"{rule}\0{pipeline}\0{sensor_key}".encode()).hexdigest()[:32]


def collection_pk(collection: str) -> str:
    return f"COLLECTION#{collection}"


def collection_part_sk(object_key: str) -> str:
    """Return the row of one object; a hash, because an object's key may be as long as a row key may be."""
    return f"{COLLECTION_PART}{hashlib.sha256(object_key.encode()).hexdigest()[:32]}"


def collection_check_sk(at: datetime, collection: str) -> str:
    """Return the row that says when to check a collection again, in time order."""
    return stamped_sk(at, collection)


# --- record ledgers ---------------------------------------------------------------------------------------------------

LEDGER = "LEDGER"
LEDGER_RECORD = "R#"
LEDGER_BUCKETS = 16


def ledger_pk(name: str) -> str:
    return f"LEDGER#{name}"


def ledger_records_pk(name: str, bucket_number: int) -> str:
    """Return one of the partitions over which the records of a ledger are spread."""
    return f"LEDGER#{name}#{bucket_number}"


def ledger_record_sk(record: str) -> str:
    return f"{LEDGER_RECORD}{record}"


def ledger_record_id(sk: str) -> str:
    return sk.removeprefix(LEDGER_RECORD)


# --- index values -----------------------------------------------------------------------------------------------------


def active_bucket(number: int) -> str:
    return f"ACTIVE#{number}"


def active_bucket_of(pk: str, sk: str) -> str:
    """Return the bucket of a row that still has work to do."""
    return active_bucket(bucket(f"{pk}|{sk}", ACTIVE_BUCKETS))


def ended_bucket(status: str, day: date, number: int) -> str:
    return f"STATUS#{status}#{day.isoformat()}#{number}"


def ended_bucket_of(key: RunKey, status: str, day: date) -> str:
    """Return the bucket of a run that ended on a day (UTC)."""
    return ended_bucket(status, day, bucket(str(key), STATUS_BUCKETS))


def ended_sk(key: RunKey, at: datetime) -> str:
    return f"{millis_text(at)}#{key.pipeline}#{key.schedule}#{key.period}"
