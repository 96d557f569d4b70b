"""The bill of an installation: list prices of us-east-1 in USD, and what the Terraform module makes by default."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.support.aws.terraform_files import local
from worker.telemetry.meters import Metric

HOURS: Final = 730  # of a month
MILLION: Final = 1_000_000

WRITE_UNITS: Final = 0.625 / MILLION
READ_UNITS: Final = 0.125 / MILLION
STREAM_READS: Final = 0.20 / MILLION
STORAGE_GB: Final = 0.25
BACKUP_GB: Final = 0.20  # point-in-time recovery
BUS_EVENTS: Final = 1.00 / MILLION
QUEUE_REQUESTS: Final = 0.40 / MILLION
VCPU_HOUR: Final = 0.03238  # Fargate on ARM64
GB_HOUR: Final = 0.00356
NAT_HOUR: Final = 0.045
NAT_GB: Final = 0.045
METRIC: Final = 0.30
ALARM: Final = 0.10
ADDRESS_HOUR: Final = 0.005  # a public IPv4 address
LOGS_GB: Final = 0.50

# --- what the module makes by default -------------------------------------------------------------------------------
TASKS: Final = 2
VCPU, MEMORY_GB = 0.5, 1.0
SMALL_VCPU, SMALL_GB = 0.25, 0.5
# Of workers, not of the console, and one that counts errors in the log. Those of AWS services cost nothing.
METRICS: Final = sum(not metric.name.startswith("WEB_") for metric in Metric) + 1
QUEUES: Final = len(local("queues"))
TABLES: Final = len(local("tables"))
WATCHED_RULES: Final = 3
# Each metric of an alarm is paid for: of tables, reads and writes, and the errors of each operation; of a service, the
# tasks that it wants and those that run; the errors in the log.
ALARMS: Final = (
    len(local("metric_alarms").keys() - set(local("unasked_alarms")))
    + 2 * QUEUES
    + TABLES * (2 + len(local("store_operations")))
    + WATCHED_RULES
    + 2
    + 1
)
STREAMED_TABLES: Final = 3
# An on-demand table begins with four partitions, and each is a shard of its stream.
SHARDS_EACH: Final = 4
READS_OF_SHARD: Final = 1800  # an hour: every two seconds at rest
QUEUES_READ: Final = 3
READS_OF_QUEUE: Final = 360  # an hour, of each worker: long polls of ten seconds
EVENTS_OF_RUN: Final = 3

# --- days that rows are kept: docs/retention.md ------------------------------------------------------------------
RUNS_KEPT: Final = 400
LOG_KEPT: Final = 30
EVENTS_KEPT: Final = 90

LOG_KB_A_RUN: Final = 1.4  # three lines of the log level INFO
WIRE_KB_A_RUN: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Units of DynamoDB, with indexes: of one run, of an idle hour of one worker, and of one more worker."""

    run_writes: float
    run_reads: float
    idle_writes: float
    idle_reads: float
    more_writes: float
    more_reads: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one run leaves in the tables, in kB."""

    run_kb: float
    log_kb: float
    events_kb: float
    copied_run_kb: float  # in an index

    def table_gb(self, runs_an_hour: float) -> float:
        kept_kb = RUNS_KEPT * self.run_kb + LOG_KEPT * self.log_kb + EVENTS_KEPT * self.events_kb
        return 24 * runs_an_hour * kept_kb / MILLION

    def index_gb(self, runs_an_hour: float) -> float:
        return 24 * runs_an_hour * (RUNS_KEPT * self.copied_run_kb + EVENTS_KEPT * self.events_kb) / MILLION


NAT: Final = "network: NAT gateway"
TASKS_OF_MODULE: Final = f"tasks: {TASKS} x {VCPU} vCPU, {MEMORY_GB:.0f} GB, ARM64"


def cheapest(parts: Mapping[str, float]) -> dict[str, float]:
    """Return the bill without a NAT gateway, with tasks that have public addresses and half the size."""
    return {
        "network: two public addresses": HOURS * TASKS * ADDRESS_HOUR,
        f"tasks: {TASKS} x {SMALL_VCPU} vCPU, {SMALL_GB} GB, ARM64": TASKS * _task(SMALL_VCPU, SMALL_GB),
        **{part: dollars for part, dollars in parts.items() if part not in {NAT, TASKS_OF_MODULE}},
    }


def _task(vcpu: float, memory_gb: float) -> float:
    return HOURS * (vcpu * VCPU_HOUR + memory_gb * GB_HOUR)


def bill(measured: Measured, kept: Kept, pipelines: int) -> dict[str, float]:
    """Return USD a month, by part, for this many pipelines that run every hour."""
    runs = pipelines * HOURS
    writes = measured.idle_writes + (TASKS - 1) * measured.more_writes
    reads = measured.idle_reads + (TASKS - 1) * measured.more_reads
    shards = SHARDS_EACH * STREAMED_TABLES
    kept_gb, indexed_gb = kept.table_gb(pipelines), kept.index_gb(pipelines)
    return {
        NAT: HOURS * NAT_HOUR + runs * WIRE_KB_A_RUN / MILLION * NAT_GB,
        TASKS_OF_MODULE: TASKS * _task(VCPU, MEMORY_GB),
        "metrics and alarms": METRICS * METRIC + ALARMS * ALARM,
        "DynamoDB, runs": runs * (measured.run_writes * WRITE_UNITS + measured.run_reads * READ_UNITS),
        "DynamoDB, idle": HOURS * (writes * WRITE_UNITS + reads * READ_UNITS),
        f"DynamoDB Streams, {shards} shards": HOURS * shards * READS_OF_SHARD * STREAM_READS,
        "storage after 400 days, with backups": kept_gb * (STORAGE_GB + BACKUP_GB) + indexed_gb * STORAGE_GB,
        "event bus": runs * EVENTS_OF_RUN * BUS_EVENTS,
        "queues": (HOURS * TASKS * QUEUES_READ * READS_OF_QUEUE + runs) * QUEUE_REQUESTS,
        "logs": runs * LOG_KB_A_RUN / MILLION * LOGS_GB,
    }
