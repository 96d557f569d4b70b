"""Standing probes: which are sent although no run waits, for which period, and how often."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.model.probes import Probe, ProbeRun
from worker.core.model.rules import keys
from worker.core.probes.expected_periods import expected_periods
from worker.core.run.state import Run
from worker.core.time.periods import Period


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingProbe:
    """StandingProbe: a probe to send for a period, at most every `every`."""

    schedule: Schedule
    period: Period
    probe: Probe
    every: timedelta


def has_standing_probes(pipeline: Pipeline) -> bool:
    return is_monitored(pipeline) or any(probe.run is ProbeRun.ALWAYS for probe in pipeline.probes)


def is_monitored(pipeline: Pipeline) -> bool:
    return pipeline.post_run is not None and pipeline.post_run.monitor is not None


def always_probes(pipeline: Pipeline, now: datetime) -> Iterator[StandingProbe]:
    """Yield the `always` probes of now, for each period in which a run is expected."""
    for probe in pipeline.probes:
        if probe.run is not ProbeRun.ALWAYS:
            continue
        for schedule in _asking(pipeline, probe):
            for period in expected_periods(schedule, probe, now):
                yield StandingProbe(schedule=schedule, period=period, probe=probe, every=probe.every)


def _asking(pipeline: Pipeline, probe: Probe) -> Iterable[Schedule]:
    """Return the schedules that the probe triggers; if it triggers none, the first stands for all."""
    triggered = [each for each in pipeline.schedules if each.trigger and each.trigger.rule.key == probe.key]
    return triggered or pipeline.schedules[:1]


def post_run_probes(
    pipeline: Pipeline, schedule: Schedule, runs: Iterable[Run], now: datetime
) -> Iterator[StandingProbe]:
    """Yield the probes of the post-run rules for every run that is being monitored."""
    post_run = pipeline.post_run
    if post_run is None or post_run.monitor is None:
        return
    named = set(keys(post_run.rules))
    for run in runs:
        if run.monitored_until is None or now >= run.monitored_until:
            continue
        for probe in pipeline.probes:
            if probe.key in named:
                every = post_run.monitor.every
                yield StandingProbe(schedule=schedule, period=run.key.period, probe=probe, every=every)
