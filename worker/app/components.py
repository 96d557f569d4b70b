"""Components of one session that decide about runs: each is built once and passed to its users."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from worker.config.versions import PipelineVersions
from worker.core.model.pipeline import JobType
from worker.core.model.probes import ProbeType
from worker.engine.commits import Commits
from worker.engine.dependency_index import DependencyIndex
from worker.engine.engine import Engine
from worker.engine.intake.cascades import Cascades
from worker.engine.intake.configs import ConfigChanges
from worker.engine.intake.dependents import Dependents
from worker.engine.intake.known_versions import KnownVersions
from worker.engine.intake.requests import RequestIntake
from worker.engine.intake.resync import PipelineResync
from worker.engine.intake.router import Router
from worker.engine.intake.sensors import SensorIntake
from worker.engine.missing_rules import MissingRules
from worker.engine.pauses import PauseEnds
from worker.engine.probe_results import ProbeResults
from worker.engine.root_causes import BlockedRunReader, RootCauses
from worker.engine.session_authority import SessionAuthority
from worker.engine.sla_watches import SlaMonitor
from worker.engine.timer_keys import TimerKey
from worker.engine.upstream_failures import UpstreamFailures
from worker.engine.upstreams import UpstreamReader
from worker.jobs.callbacks import CallbackUrl, no_callback
from worker.jobs.runner import Runner
from worker.probes.prober import Prober
from worker.probes.runner import ProbeRunner
from worker.runtime.clock import Clock
from worker.runtime.error_boundary import NO_BOUNDARY, Boundary
from worker.runtime.ids import NewId, random_id
from worker.runtime.logs import Log, to_nobody
from worker.runtime.timers import Timers
from worker.store.repos.installation import InstallTime
from worker.store.table import Tables
from worker.targets.calls import Limits, Targets, alone
from worker.targets.job_hints import JobHints
from worker.targets.measures import Measures, NoMeasures


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineComponents:
    """Holds what a session needs to decide about runs.

    `router` turns rows into facts; `resync` handles rows again.
    """

    configs: PipelineVersions
    watches: SlaMonitor
    engine: Engine
    resync: PipelineResync
    router: Router
    probes: ProbeResults


def build_engine(
    tables: Tables,
    runners: Mapping[JobType, Runner],
    standing: SessionAuthority,
    clock: Clock,
    tasks: asyncio.TaskGroup,
    *,
    began_at: datetime,
    configs: PipelineVersions | None = None,
    limits: Limits | None = None,
    new_id: NewId = random_id,
    log: Log = to_nobody,
    boundary: Boundary = NO_BOUNDARY,
    callback_url: CallbackUrl = no_callback,
    measures: Measures | None = None,
    probe_runners: Mapping[ProbeType, ProbeRunner] | None = None,
    workers: Callable[[], int] = alone,
    hints: JobHints | None = None,
) -> EngineComponents:
    """Build the components of one session. `began_at` is when this installation first started.

    `workers` says how many workers call the same targets: they divide the rates of those that are shared.
    """
    timers: Timers[TimerKey] = Timers(clock)
    configs = configs or PipelineVersions(tables)
    commits, pauses = Commits(tables, standing.session, new_id), PauseEnds(clock, log)
    upstreams = UpstreamReader(tables, configs)
    index, causes = DependencyIndex(tables, configs, clock), RootCauses(tables, configs, upstreams)
    blocked = BlockedRunReader(tables, configs, index, upstreams)
    watches = SlaMonitor(
        tables,
        configs,
        commits,
        session=standing.session,
        clock=clock,
        timers=timers,
        standing=standing,
        causes=causes,
        blocked=blocked,
        missing=MissingRules(tables, upstreams, clock),
    )
    measures = measures or NoMeasures()
    targets = Targets(clock, limits, log, workers=workers, count=measures.called)
    results = ProbeResults(tables, Prober(probe_runners or {}, targets), commits, standing, clock=clock, log=log)
    engine = Engine(
        tables,
        runners,
        standing,
        clock,
        tasks,
        configs=configs,
        commits=commits,
        watches=watches,
        pauses=pauses,
        timers=timers,
        targets=targets,
        results=results,
        new_id=new_id,
        log=log,
        boundary=boundary,
        callback_url=callback_url,
        hints=JobHints(frozenset(), clock) if hints is None else hints,
        workers=workers,
        measures=measures,
        upstreams=upstreams,
        blocked=blocked,
    )
    installed = InstallTime(began_at, clock)
    sensors = SensorIntake(tables, engine, commits, clock, log)
    cascades = Cascades(tables, engine, sensors, clock)
    requests = RequestIntake(tables, engine, configs, commits, sensors, installed=installed, clock=clock, log=log)
    failures = UpstreamFailures(commits, upstreams=upstreams, causes=causes, blocked=blocked, clock=clock)
    dependents = Dependents(
        tables, engine, configs, sensors, index=index, upstreams=upstreams, failures=failures, clock=clock
    )
    resync = PipelineResync(
        tables, configs, sensors=sensors, cascades=cascades, requests=requests, dependents=dependents, clock=clock
    )
    router = Router(
        tables,
        engine,
        configs,
        commits,
        pauses,
        sensors=sensors,
        cascades=cascades,
        requests=requests,
        dependents=dependents,
        deployed=ConfigChanges(tables, configs, watches, clock, new_id),
        resync=resync,
        installed=installed,
        known=KnownVersions(tables, configs, clock, log, boundary),
        clock=clock,
    )
    return EngineComponents(
        configs=configs, watches=watches, engine=engine, resync=resync, router=router, probes=results
    )
