"""A real Airflow as a target of the contract suite, if one is running; `tests/real_airflow.py` starts them."""

import asyncio
import base64
import json
import os
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.builders.runners import TOKEN
from tests.support.fakes.airflow import DAGS, Version
from tests.support.fakes.job_targets import NO_SECRETS, OpenTarget, Plot, Target
from worker.jobs.rest.airflow import AirflowRunner
from worker.jobs.runner import Config, Handle, JobStatus, Runner
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient
from worker.runtime.clock import SystemClock

REAL_AIRFLOW = "INTERLOCK_REAL_AIRFLOW"  # where it is and how to get in, as JSON, if it is to be tested
TOKENS = (TOKEN, "il-1", "il-2")  # what the suite starts jobs with
CALL_S = 20
LOOK_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class RealAirflow:
    """The side of Airflow that a test may look at and clear up, apart from the runner."""

    version: Version
    url: str
    username: str
    password: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def has_dag(self, dag_id: str) -> bool:
        return self._call("GET", f"/dags/{dag_id}") is not None

    def runs(self, dag_id: str) -> int:
        found = self._call("GET", f"/dags/{dag_id}/dagRuns")
        return int(found["total_entries"]) if found else 0

    def clear(self) -> None:
        """Forget the runs of earlier tests: they had the same tokens."""
        for dag_id in DAGS:
            for token in TOKENS:
                self._call("DELETE", f"/dags/{dag_id}/dagRuns/{token}")

    def _call(self, method: str, path: str) -> Mapping[str, Any] | None:
        """The answer; None if there is no such thing."""
        url = f"{self.url}/api/{self.version}{path}"
        request = urllib.request.Request(url, method=method, headers={"Authorization": self._credentials()})
        return _sent(request)

    def _credentials(self) -> str:
        if self.version == "v1":
            return f"Basic {base64.b64encode(f'{self.username}:{self.password}'.encode()).decode()}"
        login = json.dumps({"username": self.username, "password": self.password}).encode()
        headers = {"Content-Type": "application/json"}
        token = _sent(urllib.request.Request(f"{self.url}/auth/token", login, headers, method="POST"))
        assert token is not None, "this Airflow has no login"
        return f"Bearer {token['access_token']}"


def _sent(request: urllib.request.Request) -> Mapping[str, Any] | None:
    try:
        with urllib.request.urlopen(request, timeout=CALL_S) as answer:
            return json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as refusal:
        if refusal.code == 404:
            return None
        raise


class Patient(AirflowRunner):
    """Asks less often than the suite wants: checking the password of each request costs Airflow more than the job."""

    async def status(self, handle: Handle, config: Config) -> JobStatus:
        await asyncio.sleep(LOOK_AGAIN_S)
        return await super().status(handle, config)


@dataclass(frozen=True, slots=True)
class RealAirflowTarget:
    client: HttpClient
    airflow: RealAirflow
    tells_timeouts: bool = False
    server: None = None

    def runner(self) -> Runner:
        return Patient(self.client, SystemClock(), NO_SECRETS)

    def job(self, plot: Plot) -> Config:
        [dag_id] = [name for name, played in DAGS.items() if played is plot]
        return self._job(dag_id)

    def broken_job(self) -> Config:
        return self._job("nothing-here")

    def begun(self) -> int:
        return sum(self.airflow.runs(dag_id) for dag_id in DAGS)

    def _job(self, dag_id: str) -> Config:
        auth: Config = {"type": "basic", "username": self.airflow.username, "password": self.airflow.password}
        return {"url": self.airflow.url, "dagId": dag_id, "auth": auth}


@asynccontextmanager
async def _opened(_folder: Path) -> AsyncGenerator[Target]:
    airflow = RealAirflow.from_json(os.environ[REAL_AIRFLOW])
    airflow.clear()
    async with HttpClient(AddressPolicy.parse(["127.0.0.1"])) as client:
        yield RealAirflowTarget(client, airflow)


REAL_TARGETS: dict[str, OpenTarget] = {"real-airflow": _opened} if REAL_AIRFLOW in os.environ else {}
