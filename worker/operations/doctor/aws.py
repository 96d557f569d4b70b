"""Checks everything on AWS that a worker with given settings needs.

That is its identity, its clock, its permissions, its bus and its queues.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

from worker.config.roles import Role
from worker.config.settings import AlertSettings, Settings
from worker.core.errors import WorkerError
from worker.core.model.values import Json
from worker.core.time.skew import SKEW_MAX
from worker.operations.doctor.aws_calls import AwsRefusal, Unauthenticated
from worker.operations.doctor.aws_resources import BusLook, StreamLook, look_at_queue
from worker.operations.doctor.checks import followed_tables, queues, secret_probe, table_probes
from worker.operations.doctor.iam import IamCalls, ask
from worker.operations.doctor.report import Diagnosis, doubtful, fine, wrong
from worker.store.url import TableNames

MANAGED: Final = "secretsmanager://"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    calls: IamCalls
    settings: Settings
    names: TableNames
    told: Mapping[str, Json]  # the pattern of events that people must receive

    async def look(self) -> AsyncIterator[Diagnosis]:
        """Yield one diagnosis after the other. A failed check does not prevent the others.

        Without usable credentials the checks end, because no other call can succeed.
        """
        roles, aws = self.settings.roles, self.settings.aws
        try:
            async for found in self._identity():
                yield found
        except Unauthenticated as trouble:
            yield _nobody(trouble)
            return
        for probe in table_probes(self.names, roles):
            yield await ask(self.calls, probe)
        for table in followed_tables(roles):
            yield await StreamLook(self.calls, self.names[table]).diagnose()
        if Role.RELAY in roles:
            async for found in BusLook(calls=self.calls, bus=aws.bus, told=self.told).diagnose():
                yield found
        for name, address in queues(aws, roles).items():
            async for found in look_at_queue(self.calls, name, address):
                yield found
        for secret in _alert_secrets(self.settings.alerts):
            yield await ask(self.calls, secret_probe(secret))

    async def _identity(self) -> AsyncIterator[Diagnosis]:
        try:
            answer = await self.calls.call("sts", "GetCallerIdentity", {})
        except Unauthenticated:
            raise
        except (AwsRefusal, WorkerError) as trouble:
            yield _nobody(trouble)
            return
        yield fine("credentials", "who we are", f"{answer.body.get('Arn')} in account {answer.body.get('Account')}")
        yield _clock(answer.ahead_s)


def _nobody(trouble: Exception) -> Diagnosis:
    remedy = "set AWS_PROFILE or the task's role, and the region; an endpoint must be one that answers"
    return wrong("credentials", "who we are", f"no usable credentials: {trouble}", remedy)


def _clock(ahead_s: float | None) -> Diagnosis:
    if ahead_s is None:
        return doubtful("clock", "skew", "the service did not say what time it is", "compare the clock by hand")
    said = f"this clock is {abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} the service's"
    if abs(ahead_s) > SKEW_MAX.total_seconds():
        remedy = f"set the clock: beyond {SKEW_MAX.total_seconds():.0f} s a worker takes no decision"
        return wrong("clock", "skew", said, remedy)
    return fine("clock", "skew", said if ahead_s else "this clock agrees with the service's")


def _alert_secrets(alerts: AlertSettings) -> list[str]:
    """Return the names of the managed secrets that alert targets need, each once."""
    of_targets = (secret for by_owner in alerts.targets.values() for secret in by_owner.values())
    named = (each for each in (alerts.slack_token, alerts.webhook_secret, *of_targets) if each.startswith(MANAGED))
    return list(dict.fromkeys(each.removeprefix(MANAGED).partition("#")[0] for each in named))
