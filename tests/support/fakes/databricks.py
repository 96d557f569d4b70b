"""A Databricks workspace that is played: it holds to the published jobs interface, 2.1 and 2.2."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs, parse_qsl, urlsplit

from tests.support.fakes.http_target import Received, WebServer, a_web_server, answer
from tests.support.fakes.job_targets import NO_SECRETS, Plot, Target
from tests.support.fakes.published_schemas import Violation, check
from worker.jobs.rest.databricks import DatabricksRunner
from worker.jobs.runner import Config, Runner
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient
from worker.runtime.clock import SystemClock

PERSONAL_TOKEN = "dapi-0123456789"
ENDED_AT_MS = 1_772_539_200_000  # 2026-03-03T12:00:00Z
JOBS = {11: Plot.SUCCEEDS, 12: Plot.FAILS, 13: Plot.TIMES_OUT, 14: Plot.RUNS_ON}

Body: TypeAlias = Mapping[str, Any]
Call: TypeAlias = Literal["run-now", "runs/submit"]
Answering: TypeAlias = Callable[[str, Body], tuple[int, object]]

# How a run of each plot tells its state: in `state`, and in `status` as code and type.
_ENDS = {
    Plot.SUCCEEDS: ("SUCCESS", "SUCCESS", "SUCCESS"),
    Plot.FAILS: ("FAILED", "RUN_EXECUTION_ERROR", "CLIENT_ERROR"),
    Plot.TIMES_OUT: ("TIMEDOUT", "CANCELED", "CLIENT_ERROR"),
}


@dataclass(slots=True)
class PlayedRun:
    plot: Plot
    is_cancelled: bool = False


@dataclass(slots=True)
class Workspace:
    """One that lets in whoever brings the token, and starts one run for one idempotency token."""

    accepted: str = PERSONAL_TOKEN
    page_size: int = 25
    runs: dict[int, PlayedRun] = field(default_factory=dict[int, PlayedRun])
    _by_token: dict[str, int] = field(default_factory=dict[str, int])

    async def behave(self, request: Received, writer: asyncio.StreamWriter) -> None:
        await answer(*self.respond(request))(request, writer)

    def respond(self, request: Received) -> tuple[int, object]:
        """Do what is asked, and say what the answer to it is."""
        if request.headers.get("authorization") != f"Bearer {self.accepted}":
            return _error(401, "UNAUTHENTICATED", "no")
        try:
            return self._answer(request)
        except Violation as problem:
            return _error(400, "MALFORMED_REQUEST", str(problem))

    def _answer(self, request: Received) -> tuple[int, object]:
        split = urlsplit(request.path)
        _, api, version, section, call = split.path.split("/", 4)
        if api != "api" or version not in {"2.1", "2.2"} or section != "jobs":
            return _error(404, "ENDPOINT_NOT_FOUND", split.path)
        answers: Mapping[tuple[str, str], Answering] = {
            ("POST", "run-now"): self._run_now,
            ("POST", "runs/submit"): self._submit,
            ("POST", "runs/cancel"): self._cancel,
        }
        if (request.method, call) == ("GET", "runs/get"):
            return self._get(version, int(parse_qs(split.query)["run_id"][0]))
        if (request.method, call) == ("GET", "runs/list"):
            return self._list(version, dict(parse_qsl(split.query)))
        if (request.method, call) not in answers:
            return _error(404, "ENDPOINT_NOT_FOUND", split.path)
        return answers[request.method, call](version, json.loads(request.body))

    def _run_now(self, _version: str, body: Body) -> tuple[int, object]:
        check("databricks", "RunNow", body)
        plot = JOBS.get(body["job_id"])
        if plot is None:
            return _error(400, "INVALID_PARAMETER_VALUE", f"Job {body['job_id']} does not exist.")
        return self._started("RunNowResponse", plot, body)

    def _submit(self, _version: str, body: Body) -> tuple[int, object]:
        check("databricks", "SubmitRun", body)
        if not body.get("tasks"):
            return _error(400, "INVALID_PARAMETER_VALUE", "One of job_cluster_key, new_cluster or tasks is needed.")
        return self._started("SubmitRunResponse", Plot[body["tasks"][0]["task_key"]], body)

    def _started(self, schema: str, plot: Plot, body: Body) -> tuple[int, object]:
        fresh = 455_644_833 + len(self.runs)
        run_id = self._by_token.setdefault(body.get("idempotency_token", str(fresh)), fresh)
        self.runs.setdefault(run_id, PlayedRun(plot))
        started = {"run_id": run_id}
        check("databricks", schema, started)
        return 200, started

    def _cancel(self, _version: str, body: Body) -> tuple[int, object]:
        check("databricks", "CancelRun", body)
        run = self.runs.get(body["run_id"])
        if run is None:
            return _error(400, "INVALID_PARAMETER_VALUE", "Run does not exist.")
        run.is_cancelled = run.is_cancelled or run.plot is Plot.RUNS_ON
        return 200, {}

    def _get(self, version: str, run_id: int) -> tuple[int, object]:
        run = self.runs.get(run_id)
        if run is None:
            return _error(400, "INVALID_PARAMETER_VALUE", "Run does not exist.")
        told = {"run_id": run_id, "run_name": "played", **_told(run, version)}
        check("databricks", "Run", told)
        return 200, told

    def _list(self, version: str, asked: Mapping[str, str]) -> tuple[int, object]:
        check("databricks", "ListRuns", asked)
        active = [run_id for run_id, run in self.runs.items() if run.plot is Plot.RUNS_ON and not run.is_cancelled]
        first = int(asked.get("page_token", "0"))
        rest = first + min(int(asked["limit"]), self.page_size)
        told = [{"run_id": run_id, **_told(self.runs[run_id], version)} for run_id in active[first:rest]]
        listed: dict[str, object] = {"has_more": rest < len(active), **({"runs": told} if told else {})}
        if rest < len(active):
            listed["next_page_token"] = str(rest)
        check("databricks", "ListRunsResponse", listed)
        return 200, listed


def _told(run: PlayedRun, version: str) -> dict[str, object]:
    if run.plot is Plot.RUNS_ON and not run.is_cancelled:
        state: dict[str, object] = {"life_cycle_state": "RUNNING"}
        return {"state": state, "end_time": 0, **({"status": {"state": "RUNNING"}} if version == "2.2" else {})}
    result, code, kind = _ENDS.get(run.plot, ("CANCELED", "USER_CANCELED", "SUCCESS"))
    state = {"life_cycle_state": "TERMINATED", "result_state": result, "state_message": "as played"}
    status = {"state": "TERMINATED", "termination_details": {"code": code, "type": kind, "message": "as played"}}
    return {"state": state, "end_time": ENDED_AT_MS, **({"status": status} if version == "2.2" else {})}


def _error(status: int, code: str, message: str) -> tuple[int, object]:
    body = {"error_code": code, "message": message}
    check("databricks", "Error", body)
    return status, body


@dataclass(frozen=True, slots=True)
class DatabricksTarget:
    client: HttpClient
    base: str
    workspace: Workspace
    call: Call
    tells_timeouts: bool = True
    server: WebServer | None = None

    def runner(self) -> Runner:
        return DatabricksRunner(self.client, SystemClock(), NO_SECRETS)

    def job(self, plot: Plot) -> Config:
        task = {"task_key": plot.name, "notebook_task": {"notebook_path": "/played"}}
        [job_id] = [number for number, played in JOBS.items() if played is plot]
        what: Config = {"jobId": str(job_id)} if self.call == "run-now" else {"body": {"tasks": [task]}}
        return {**self._access(), **what}

    def broken_job(self) -> Config:
        what: Config = {"jobId": "404"} if self.call == "run-now" else {"body": {"run_name": "no tasks"}}
        return {**self._access(), **what}

    def begun(self) -> int:
        return len(self.workspace.runs)

    def _access(self) -> Config:
        return {"workspaceUrl": f"{self.base}/", "auth": {"type": "bearer", "token": PERSONAL_TOKEN}}


@asynccontextmanager
async def databricks_target(call: Call, _folder: Path) -> AsyncGenerator[Target]:
    workspace = Workspace()
    async with a_web_server(workspace.behave) as server, HttpClient(AddressPolicy.parse(["127.0.0.1"])) as client:
        yield DatabricksTarget(client, server.url("").rstrip("/"), workspace, call, server=server)
