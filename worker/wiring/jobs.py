"""The wiring of everything that runs jobs: all nine targets, and the secrets their configurations may name."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from worker.clock import Clock
from worker.core.pipeline import JobType
from worker.engine.rates import with_own
from worker.engine.targets import Limits
from worker.jobs.address_policy import AddressPolicy
from worker.jobs.airflow import AirflowRunner
from worker.jobs.aws import Aws, AwsSettings
from worker.jobs.aws_runners import aws_runners
from worker.jobs.command import CommandRunner, minimal_environment
from worker.jobs.databricks import DatabricksRunner
from worker.jobs.http import HttpRunner
from worker.jobs.http_client import HttpClient
from worker.jobs.runner import Runner
from worker.jobs.secrets import EnvironmentSecrets, JobSecrets, SecretSource
from worker.jobs.secretsmanager import SecretsManagerSecrets
from worker.settings import OWN_SECRETS, Settings
from worker.store.sensors import Sensors
from worker.store.table import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRoot:
    """Where command jobs keep their books, and whether all workers of the group see the same place."""

    path: Path
    is_shared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTargets:
    runners: Mapping[JobType, Runner]
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
    aws: AwsSettings | None = None,
) -> JobTargets:
    """Make the runners; what they hold open is closed with `stack`. Nothing is connected to before it is used."""
    http = await stack.enter_async_context(HttpClient(AddressPolicy.parse(settings.http_allow)))
    cloud = await stack.enter_async_context(Aws(aws))
    secrets = JobSecrets(EnvironmentSecrets(environment, OWN_SECRETS), SecretsManagerSecrets(cloud, clock))
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
    limits = Limits(rates=with_own(settings.target_rates))
    return JobTargets(runners=runners, limits=limits, command=commands, http=http, secrets=secrets)
