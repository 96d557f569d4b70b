"""The bill of an installation: list prices of us-east-1 in USD, and what the Terraform module makes by default."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bench.capacity import EVENTS, INDEXES, QUEUES, READS, ROWS, STREAMS

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
LOGS_GB: Final = 0.50

# --- what the module makes by default -------------------------------------------------------------------------------
TASKS: Final = 2
VCPU, MEMORY_GB = 0.5, 1.0
METRICS: Final = 20  # of the program itself; those of AWS services cost nothing
ALARMS: Final = 30
STREAMED_TABLES: Final = 3
# An on-demand table begins with four partitions, and each is a shard of its stream. The emulator has one.
SHARDS_EACH: Final = 4
QUEUES_READ: Final = 3

# --- what stays, for how long: docs/retention.md -------------------------------------------------------------------
ROW_KB: Final = 1.0
RUN_ROWS_KEPT: Final = 2 * 400 * 24  # the run and what its job was started on, of hourly runs
EVENT_ROWS_KEPT: Final = 3 * 90 * 24
LOG_ROWS_KEPT: Final = 30 * 24
INDEX_COPIES: Final = 400 * 24 + 3 * 90 * 24
LOG_LINE_KB_A_RUN: Final = 4.0
WIRE_KB_A_RUN: Final = 30.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Units: of one run, of an idle hour of one worker, and of one more worker."""

    run: Mapping[str, float]
    idle: Mapping[str, float]
    more: Mapping[str, float]


def bill(measured: Measured, pipelines: int) -> dict[str, float]:
    """Return USD a month, by part, for this many pipelines that run every hour."""
    runs = pipelines * HOURS
    idle = {kind: units + (TASKS - 1) * measured.more[kind] for kind, units in measured.idle.items()}
    writes = runs * (measured.run[ROWS] + measured.run[INDEXES]) * WRITE_UNITS
    reads = runs * measured.run[READS] * READ_UNITS
    shards = SHARDS_EACH * STREAMED_TABLES
    # Each shard is read as often as the one shard of each table of the emulator.
    streams = HOURS * measured.idle[STREAMS] / STREAMED_TABLES * shards * STREAM_READS
    rows = RUN_ROWS_KEPT + EVENT_ROWS_KEPT + LOG_ROWS_KEPT
    task = HOURS * (VCPU * VCPU_HOUR + MEMORY_GB * GB_HOUR)
    kept_gb = pipelines * (rows + INDEX_COPIES) * ROW_KB / MILLION
    return {
        "network: NAT gateway": HOURS * NAT_HOUR + runs * WIRE_KB_A_RUN / MILLION * NAT_GB,
        f"tasks: {TASKS} x {VCPU} vCPU, {MEMORY_GB:.0f} GB, ARM64": TASKS * task,
        "metrics and alarms": METRICS * METRIC + ALARMS * ALARM,
        "DynamoDB, runs": writes + reads,
        "DynamoDB, idle": HOURS * ((idle[ROWS] + idle[INDEXES]) * WRITE_UNITS + idle[READS] * READ_UNITS),
        f"DynamoDB Streams, {shards} shards": streams + runs * measured.run[STREAMS] * STREAM_READS,
        "storage, after 400 days, with backups": kept_gb * STORAGE_GB + pipelines * rows * ROW_KB / MILLION * BACKUP_GB,
        "event bus": runs * measured.run[EVENTS] * BUS_EVENTS,
        "queues": (HOURS * idle[QUEUES] * QUEUES_READ + runs * measured.run[QUEUES]) * QUEUE_REQUESTS,
        "logs": runs * LOG_LINE_KB_A_RUN / MILLION * LOGS_GB,
    }
