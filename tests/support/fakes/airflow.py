"""An Airflow that is played: it holds to the published REST interface of Airflow 2 (`v1`) or Airflow 3 (`v2`)."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tests.support.fakes.http_target import Received, WebServer, a_web_server, answer
from tests.support.fakes.job_targets import NO_SECRETS, Plot, Target
from tests.support.fakes.published_schemas import Violation, check
from worker.jobs.rest.airflow import AirflowRunner
from worker.jobs.runner import Config, Runner
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient
from worker.runtime.clock import SystemClock

NAME, PASSWORD = "interlock", "played-password"
ENDED_AT = "2026-03-03T12:00:00.250000+00:00"
DAGS = {"succeeds": Plot.SUCCEEDS, "fails": Plot.FAILS, "times_out": Plot.TIMES_OUT, "runs_on": Plot.RUNS_ON}
AUTH: Config = {"type": "basic", "username": NAME, "password": PASSWORD}

Version: TypeAlias = Literal["v1", "v2"]
Body: TypeAlias = Mapping[str, Any]

_STATES = {Plot.SUCCEEDS: "success", Plot.FAILS: "failed", Plot.TIMES_OUT: "failed", Plot.RUNS_ON: "running"}


@dataclass(slots=True)
class PlayedRun:
    dag_id: str
    run_id: str
    state: str
    logical_date: str | None
    conf: object


@dataclass(slots=True)
class Airflow:
    """A server of one version. Airflow 2 takes a name and a password, Airflow 3 a token it gave for them."""

    version: Version
    token: str = "played-jwt"
    page_size: int = 100
    accepted: str = ""  # an Authorization header to insist on instead
    runs: dict[tuple[str, str], PlayedRun] = field(default_factory=dict[tuple[str, str], PlayedRun])

    async def behave(self, request: Received, writer: asyncio.StreamWriter) -> None:
        await answer(*self.respond(request))(request, writer)

    def respond(self, request: Received) -> tuple[int, object]:
        """Do what is asked, and say what the answer to it is."""
        try:
            return self._answer(request)
        except Violation as problem:
            return self._error(400 if self.version == "v1" else 422, str(problem))

    def _answer(self, request: Received) -> tuple[int, object]:
        parts = request.path.strip("/").split("/")
        if parts == ["auth", "token"] and self.version == "v2":
            return self._login(json.loads(request.body))
        if parts[:2] != ["api", self.version]:
            return self._error(404, "Not Found")
        if parts[2:] == ["version"]:
            told = {"version": "3.0.0" if self.version == "v2" else "2.11.0", "git_version": None}
            check(f"airflow-{self.version}", "Version", told)
            return 200, told
        if request.headers.get("authorization") != self._wanted():
            # Airflow 3 says of a bad token that it is forbidden, not that it is unknown.
            return self._error(401 if self.version == "v1" else 403, "Invalid JWT token")
        return self._about_runs(request, parts[2:])

    def _wanted(self) -> str:
        if self.accepted:
            return self.accepted
        pair = base64.b64encode(f"{NAME}:{PASSWORD}".encode()).decode()
        return f"Basic {pair}" if self.version == "v1" else f"Bearer {self.token}"

    def _login(self, body: Body) -> tuple[int, object]:
        check("airflow-v2", "Login", body)
        if body != {"username": NAME, "password": PASSWORD}:
            return self._error(401, "Invalid credentials")
        return 201, {"access_token": self.token}

    def _about_runs(self, request: Received, parts: list[str]) -> tuple[int, object]:
        match request.method, parts:
            case "POST", ["dags", "~", "dagRuns", "list"]:
                return self._list(json.loads(request.body))
            case "POST", ["dags", dag_id, "dagRuns"]:
                return self._trigger(dag_id, json.loads(request.body))
            case "GET", ["dags", dag_id, "dagRuns", run_id]:
                return self._get(dag_id, run_id)
            case "PATCH", ["dags", dag_id, "dagRuns", run_id]:
                return self._patch(dag_id, run_id, json.loads(request.body))
            case _:
                return self._error(404, "Not Found")

    def _trigger(self, dag_id: str, body: Body) -> tuple[int, object]:
        check(f"airflow-{self.version}", "TriggerDAGRun", body)
        if dag_id not in DAGS:
            return self._error(404, f"DAG with dag_id: '{dag_id}' not found")
        run_id, date = body["dag_run_id"], body.get("logical_date")
        is_date_taken = any(run.logical_date == date for (dag, _), run in self.runs.items() if date and dag == dag_id)
        if (dag_id, run_id) in self.runs or is_date_taken:
            return self._error(409, "Unique constraint violation")
        state = _STATES[DAGS[dag_id]]
        self.runs[dag_id, run_id] = PlayedRun(dag_id, run_id, state, date, body.get("conf"))
        return self._get(dag_id, run_id)

    def _get(self, dag_id: str, run_id: str) -> tuple[int, object]:
        run = self.runs.get((dag_id, run_id))
        if run is None:
            return self._error(404, f"The DagRun with dag_id: `{dag_id}` and run_id: `{run_id}` was not found")
        told = self._told(run)
        check(f"airflow-{self.version}", "DAGRun", told)
        return 200, told

    def _list(self, body: Body) -> tuple[int, object]:
        check(f"airflow-{self.version}", "ListDAGRuns", body)
        wanted = [run for run in self.runs.values() if run.dag_id in body["dag_ids"] and run.state in body["states"]]
        first = body["page_offset"]
        told = [self._told(run) for run in wanted[first : first + min(body["page_limit"], self.page_size)]]
        listed = {"dag_runs": told, "total_entries": len(wanted)}
        check(f"airflow-{self.version}", "DAGRunCollection", listed)
        return 200, listed

    def _patch(self, dag_id: str, run_id: str, body: Body) -> tuple[int, object]:
        check(f"airflow-{self.version}", "PatchDAGRun", body)
        if (dag_id, run_id) in self.runs:
            self.runs[dag_id, run_id].state = body["state"]
        return self._get(dag_id, run_id)

    def _told(self, run: PlayedRun) -> dict[str, object]:
        is_over = run.state in {"success", "failed"}
        shared: dict[str, object] = {
            "dag_id": run.dag_id,
            "dag_run_id": run.run_id,
            "state": run.state,
            "logical_date": run.logical_date,
            "start_date": ENDED_AT,
            "end_date": ENDED_AT if is_over else None,
            "conf": run.conf,
            "note": None,
            "run_type": "manual",
        }
        if self.version == "v1":
            return {**shared, "external_trigger": True}
        return {**shared, "queued_at": ENDED_AT, "run_after": ENDED_AT, "dag_versions": []}

    def _error(self, status: int, detail: str) -> tuple[int, object]:
        of_v1 = {"type": "about:blank", "title": "No", "status": status}
        body = {"detail": detail, **(of_v1 if self.version == "v1" else {})}
        check(f"airflow-{self.version}", "Error", body)
        return status, body


@dataclass(frozen=True, slots=True)
class AirflowTarget:
    client: HttpClient
    base: str
    airflow: Airflow
    tells_timeouts: bool = False
    server: WebServer | None = None

    def runner(self) -> Runner:
        return AirflowRunner(self.client, SystemClock(), NO_SECRETS)

    def job(self, plot: Plot) -> Config:
        [dag_id] = [name for name, played in DAGS.items() if played is plot]
        return {"url": f"{self.base}/", "dagId": dag_id, "auth": AUTH}

    def broken_job(self) -> Config:
        return {"url": self.base, "dagId": "nothing-here", "auth": AUTH}

    def begun(self) -> int:
        return len(self.airflow.runs)


@asynccontextmanager
async def airflow_target(version: Version, _folder: Path) -> AsyncGenerator[Target]:
    airflow = Airflow(version)
    async with a_web_server(airflow.behave) as server, HttpClient(AddressPolicy.parse(["127.0.0.1"])) as client:
        yield AirflowTarget(client, server.url("").rstrip("/"), airflow, server=server)
