"""Wiring of probes: the adapter of each type, for workers and for commands that send one probe."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from worker.config.settings import OWN_SECRETS, STORE, Settings
from worker.core.model.probes import ProbeType
from worker.jobs.aws.client import Aws
from worker.jobs.aws.secrets_manager import SecretsManagerSecrets
from worker.jobs.command.runner import minimal_environment
from worker.jobs.secrets import EnvironmentSecrets, JobSecrets, SecretSource
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient
from worker.probes.adapters.aws import DynamodbItemProbes, GluePartitionProbes, S3Probes
from worker.probes.adapters.command import CommandProbes
from worker.probes.adapters.http import HttpProbes
from worker.probes.adapters.postgresql import PostgresqlQueries
from worker.probes.adapters.sql import SqlProbes
from worker.probes.prober import Prober
from worker.probes.runner import ProbeRunner
from worker.runtime.clock import Clock
from worker.targets.calls import Limits, Targets
from worker.targets.rates import with_own


def probe_runners(
    http: HttpClient, cloud: Aws, clock: Clock, secrets: SecretSource, environment: Mapping[str, str]
) -> dict[ProbeType, ProbeRunner]:
    """Return the adapter of every type. `environment` is what programs get of the worker's own."""
    return {
        ProbeType.HTTP: HttpProbes(http, clock, secrets),
        ProbeType.COMMAND: CommandProbes(secrets, environment),
        ProbeType.S3: S3Probes(cloud),
        ProbeType.GLUE_PARTITION: GluePartitionProbes(cloud),
        ProbeType.DYNAMODB_ITEM: DynamodbItemProbes(cloud),
        ProbeType.SQL: SqlProbes(cloud, clock, PostgresqlQueries(http, secrets)),
    }


def job_secrets(environment: Mapping[str, str], cloud: Aws, clock: Clock) -> JobSecrets:
    """Return the secrets that configurations of jobs and probes may name: never the worker's own."""
    return JobSecrets(EnvironmentSecrets(environment, OWN_SECRETS | {STORE}), SecretsManagerSecrets(cloud, clock))


@asynccontextmanager
async def open_prober(settings: Settings, environment: Mapping[str, str], clock: Clock) -> AsyncGenerator[Prober]:
    """Open what sends probes as a worker with these settings would."""
    async with HttpClient(AddressPolicy.parse(settings.http_allow)) as http, Aws(None) as cloud:
        given = minimal_environment(environment, settings.job_environment)
        runners = probe_runners(http, cloud, clock, job_secrets(environment, cloud, clock), given)
        yield Prober(runners, Targets(clock, Limits(rates=with_own(settings.target_rates))))
