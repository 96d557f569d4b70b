"""What a simulated world is made of: how large it is, how fast its workers beat, and the pipelines drawn for it."""

import json
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from random import Random
from typing import Final

from consumers.streams.embedded.housekeeping import EVERY_S
from worker.config.load import load_text
from worker.core.membership.liveness import DEFAULT_TIMING, Timing
from worker.core.model.pipeline import JobType, Pipeline
from worker.core.model.values import Json
from worker.membership.orphan_finder import LEASES, PASS_EVERY_S

# The real beat, slowed down in proportion: what matters is which comes first, and beats cost most of the time.
SLOW_TIMING: Final = Timing(beat_s=200.0, fence_s=500.0, kill_s=660.0, look_s=240.0, stall_s=1500.0)


QUICK_TIMING: Final = Timing(beat_s=20.0, fence_s=50.0, kill_s=66.0, look_s=24.0, stall_s=150.0)
PROBE: Final = "api"
PROBE_EVERY_S: Final = 240.0
PROBE_TTL_S: Final = 600.0


class Beat(StrEnum):
    REAL = "real"
    SLOW = "slow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One history. What it prints as is what `make simulate` needs to play it again."""

    seed: int
    pipelines: int = 5
    hours: int = 6
    workers: int = 3
    downstreams: int = 0  # pipelines that run after others, besides `pipelines`
    probes: int = 0  # of `pipelines`, those that wait for a probe, too
    beat: Beat = Beat.SLOW
    is_varied: bool = False  # its pace and its faults are drawn from the seed, too
    timing: Timing = field(default=SLOW_TIMING)
    bucket_leases: int = 4
    pass_every_s: float = 600.0
    upkeep_every_s: float = 1800.0
    storms_last_s: float = 1200.0  # at most
    index_lag_s: float = 1080.0  # longer than it takes to find a worker dead, as the real one is
    fault_every_s: float = 1500.0  # on average
    trouble: float = 0.05  # the share of a target's calls that go wrong

    @property
    def grace(self) -> timedelta:
        """How long after its time something may still be undone: another worker has to notice, a store to answer."""
        # A session that beats faster than a storm passes is lost in it, again and again: then nobody gets anywhere.
        storm_s = self.storms_last_s if self.timing.fence_s < self.storms_last_s / 10 else 0.0
        seconds = 2 * (self.timing.kill_s + self.pass_every_s) + self.index_lag_s + storm_s
        return timedelta(minutes=10, seconds=seconds)

    def __str__(self) -> str:
        size = f"PIPELINES={self.pipelines} HOURS={self.hours} WORKERS={self.workers}"
        below = f" DOWNSTREAMS={self.downstreams}" if self.downstreams else ""
        below += f" PROBES={self.probes}" if self.probes else ""
        return f"SEED={self.seed} {size}{below} BEAT={self.beat}{' VARIED=yes' if self.is_varied else ''}"


def small(seed: int) -> Plan:
    return Plan(seed=seed, workers=3 if seed % 4 == 0 else 2)


def small_probes(seed: int) -> Plan:
    """A small one whose pipelines wait for probes. Its beat is fast, so that little time may pass before a commit."""
    return Plan(seed=seed, pipelines=3, hours=4, workers=2, probes=3, timing=QUICK_TIMING)


def small_graph(seed: int) -> Plan:
    """A small one whose pipelines run after each other."""
    return Plan(seed=seed, pipelines=2, hours=6, workers=2, downstreams=3)


def full(seed: int, *, pipelines: int, hours: int, workers: int = 3) -> Plan:
    """The size asked for, with the beat that workers really have."""
    return Plan(
        seed=seed,
        pipelines=pipelines,
        hours=hours,
        workers=workers,
        beat=Beat.REAL,
        timing=DEFAULT_TIMING,
        bucket_leases=LEASES,
        pass_every_s=PASS_EVERY_S,
        upkeep_every_s=EVERY_S,
        index_lag_s=60.0,
        storms_last_s=600.0,
    )


_JOBS: Final[dict[JobType, dict[str, Json]]] = {
    JobType.STEP_FUNCTION: {"stateMachineArn": "arn:aws:states:eu-central-1:123456789012:stateMachine:load"},
    JobType.GLUE: {"jobName": "load"},
    JobType.LAMBDA: {"functionName": "load"},
}


def draw_kind(random: Random) -> JobType:
    return random.choices(list(_JOBS), weights=[3, 6, 2])[0]


def draw_job(kind: JobType, random: Random) -> dict[str, Json]:
    """A job that takes no more than hours, and is tried some times."""
    return {
        "type": kind.value,
        "config": _JOBS[kind],
        "maxRetries": random.randint(0, 2),
        "maxCodeRetries": random.randint(0, 1),
        "maxManualReruns": 2,
        "jobPollWindowSeconds": 1500,
        "pollIntervalSeconds": random.choice([120, 240]),
        "runTimeoutSeconds": random.choice([3600, 7200]),
    }


def draw_probe(seed: int, number: int) -> dict[str, Json]:
    """A probe, from a luck of its own: one result for each hour or one for all, confirmed before a start or not."""
    random = Random(f"probe {seed} {number}")
    path = f"p{number:02d}" + random.choice(["", " ${DATE} ${HOUR}"])
    return {
        "key": PROBE,
        "type": "sql",
        "config": {"engine": "sqlite", "path": path, "query": "select 1"},
        "every": f"{PROBE_EVERY_S:.0f}s",
        "ttl": f"{PROBE_TTL_S:.0f}s",
        "timeout": "20s",
        "run": random.choice(["while-waiting", "before-start"]),
    }


def draw_pipeline(number: int, random: Random, probe: dict[str, Json] | None = None) -> Pipeline:
    """An hourly pipeline that starts when `ready` says so and waits for `count`, and perhaps for a probe."""
    kind = draw_kind(random)
    text: dict[str, Json] = {
        "pipeline": {"id": f"p{number:02d}"},
        "schedule": {
            "trigger": {"key": "ready", "check": "equals", "field": "status", "value": "done"},
            "evaluation": {"window": "30m", "interval": "5m", "reopen": random.random() < 0.5},
        },
        "validation": {"rules": [{"key": "count", "check": "gte", "field": "rows", "value": 100}]},
        "job": draw_job(kind, random),
    }
    if kind is JobType.LAMBDA and number % 2:
        job = text["job"]
        assert isinstance(job, dict)
        job["onUnknownStart"] = "restart"
    if random.random() < 0.1:
        text["dryRun"] = True
    if random.random() < 0.7:
        text["sla"] = random.choice([{"deadline": ":50", "expectedDuration": "20m"}, {"maxDuration": "40m"}])
    sla = text.get("sla")
    if isinstance(sla, dict):  # no draw of its own: the histories of earlier seeds stay what they were
        sla.update({"maxEvaluation": "12m"} if number % 2 else {"evaluationDeadline": ":20"})
    if random.random() < 0.5:
        text["postRun"] = {"rules": [{"key": "out", "check": "gte", "field": "sensor_count", "value": 1}]}
    if probe is not None:
        rules: list[Json] = [{"key": "count", "check": "gte", "field": "rows", "value": 100}]
        text |= {"probes": [probe], "validation": {"rules": [*rules, {"key": PROBE, "check": "passes"}]}}
    loaded = load_text(json.dumps(text))
    assert loaded.pipeline is not None, loaded.errors
    return loaded.pipeline
