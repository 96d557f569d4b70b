"""Wiring of job runners: all nine targets, and the secrets that their configurations may name."""

from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from worker.app.alerts import BackgroundTask
from worker.app.probes import job_secrets, probe_runners
from worker.config.settings import Settings
from worker.core.model.pipeline import JobType
from worker.core.model.probes import ProbeType
from worker.jobs.aws.client import Aws, AwsEndpoint
from worker.jobs.aws.runners import aws_runners
from worker.jobs.command.runner import CommandRunner, minimal_environment
from worker.jobs.http.runner import HttpRunner
from worker.jobs.rest.airflow import AirflowRunner
from worker.jobs.rest.databricks import DatabricksRunner
from worker.jobs.runner import Runner
from worker.jobs.secrets import SecretSource
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient
from worker.probes.runner import ProbeRunner
from worker.runtime.clock import Clock
from worker.store.repos.sensors import Sensors
from worker.store.table import Tables
from worker.targets.calls import Limits
from worker.targets.rates import with_own

SWEEP_JOBS_EVERY_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRoot:
    """Holds the directory of command jobs' files, and whether all workers of the group share it."""

    path: Path
    is_shared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTargets:
    runners: Mapping[JobType, Runner]
    probes: Mapping[ProbeType, ProbeRunner]
    limits: Limits
    command: CommandRunner
    http: HttpClient
    secrets: SecretSource


async def open_targets(
    stack: AsyncExitStack,
    settings: Settings,
    environment: Mapping[str, str],
    *,
    tables: Tables,
    clock: Clock,
    command: CommandRoot,
    aws: AwsEndpoint | None = None,
) -> JobTargets:
    """Create the runners; `stack` closes them. They connect on first use."""
    http = await stack.enter_async_context(HttpClient(AddressPolicy.parse(settings.http_allow)))
    cloud = await stack.enter_async_context(Aws(aws))
    secrets = job_secrets(environment, cloud, clock)
    commands = CommandRunner(
        root=command.path,
        clock=clock,
        secrets=secrets,
        environment=minimal_environment(environment, settings.job_environment),
        is_root_shared=command.is_shared,
    )
    runners: dict[JobType, Runner] = {
        JobType.COMMAND: commands,
        JobType.HTTP: HttpRunner(http, clock, secrets),
        JobType.DATABRICKS: DatabricksRunner(http, clock, secrets),
        JobType.AIRFLOW: AirflowRunner(http, clock, secrets),
        **aws_runners(cloud, clock, secrets, Sensors(tables)),
    }
    probes = probe_runners(http, cloud, clock, secrets, commands.environment)
    limits = Limits(rates=with_own(settings.target_rates))
    return JobTargets(runners=runners, probes=probes, limits=limits, command=commands, http=http, secrets=secrets)


def job_sweeper(command: CommandRunner, clock: Clock) -> BackgroundTask:
    """Return a task that deletes the files of command jobs that ended long ago, once an hour."""

    async def sweep() -> None:
        while True:
            with suppress(OSError):  # the next sweep tries again
                await command.sweep()
            await clock.sleep(SWEEP_JOBS_EVERY_S)

    return sweep
