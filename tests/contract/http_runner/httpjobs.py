"""HTTP jobs as the tests configure them: their addresses, their secrets and where they may connect to."""

from collections.abc import Mapping

from tests.support.fakes.http_target import WebServer
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.jobs.runner import Config
from worker.jobs.secrets import EnvironmentSecrets
from worker.net.address_policy import AddressPolicy

PERMANENT, TRANSIENT, TIMEOUT = FailureCategory.PERMANENT, FailureCategory.TRANSIENT, FailureCategory.TIMEOUT
SECRETS = EnvironmentSecrets({"INTERLOCK_KEY": 'hunter"22', "INTERLOCK_USER": "scott"})
HERE = AddressPolicy.parse(["127.0.0.1"])


def job(server: WebServer, **further: Json) -> Config:
    return {"url": server.url("/start"), **further}


def followed(server: WebServer, **further: Json) -> Config:
    return job(server, statusUrl=server.url("/status/{id}"), **further)


def oauth(server: WebServer) -> Mapping[str, Json]:
    return {
        "type": "oauth",
        "tokenUrl": server.url("/token"),
        "clientId": "interlock",
        "clientSecret": "${INTERLOCK_KEY}",
        "scope": "jobs",
    }
