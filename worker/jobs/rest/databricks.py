"""Runs jobs on Databricks: `run-now` of an existing job, or `runs/submit` of the pipeline's tasks.

The token is the request's `idempotency_token`: Databricks starts one run for it and returns the same run for every
repeat. It has no search by token, so sending again *is* how a lost run is found.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, cast
from urllib.parse import quote

from worker.core.model.values import Json
from worker.jobs.http.auth import TargetAccess
from worker.jobs.http.json_path import LONG_ANSWER_BYTES_MAX, JsonApi, listed, members_of, same_place
from worker.jobs.http.requests import address
from worker.jobs.http.responses import judge_start, judge_stop
from worker.jobs.http.sending import Sender, answered, send_limit
from worker.jobs.rest.databricks_states import judge_run
from worker.jobs.runner import (
    CannotStop,
    Config,
    Guarantee,
    Handle,
    JobStatus,
    Running,
    Sightings,
    StartAnswer,
    Started,
    StartRequest,
    StatusQuery,
    StopAnswer,
    Stopped,
    Traits,
    Unknown,
)
from worker.jobs.secrets import Filling, SecretSource
from worker.jobs.spec_fields import UnusableConfig, parse_config
from worker.jobs.specs import DatabricksConfig
from worker.net.http_client import HttpAnswer, HttpClient
from worker.runtime.clock import Clock

PAGE: Final = 25  # runs per page


class DatabricksRunner:
    """Runs jobs in Databricks workspaces."""

    def __init__(self, client: HttpClient, clock: Clock, secrets: SecretSource) -> None:
        self._sender = Sender(client, clock)
        self._secrets = secrets

    def traits(self, config: Config) -> Traits:
        parsed = parse_config(DatabricksConfig, config)
        timeout = timedelta(seconds=parsed.timeout)
        return Traits(
            guarantee=Guarantee.EXACTLY_ONCE,
            can_stop=True,
            send_timeout=send_limit(TargetAccess(parsed.auth), timeout),
            is_found_by_sending=True,
        )

    async def start(self, request: StartRequest) -> StartAnswer:
        filling = Filling(self._secrets)
        return await answered(self._start(request, filling), filling)

    async def status(self, handle: Handle, config: Config) -> JobStatus:
        parsed = parse_config(DatabricksConfig, config)
        api = await self._api(parsed, Filling(self._secrets))
        path = f"{_jobs(parsed)}/runs/get?run_id={quote(str(handle['runId']), safe='')}"
        answer = await api.ask(path, answer_bytes_max=LONG_ANSWER_BYTES_MAX)
        run = members_of(answer)
        if run is None:
            raise api.unusable(answer)
        return api.shown(judge_run(run))

    def group(self, question: StatusQuery) -> str:
        return same_place(question.config, "workspaceUrl", "apiVersion")

    async def look(self, questions: Sequence[StatusQuery], more: str = "") -> Sightings:
        """List the unfinished runs of a workspace."""
        parsed = parse_config(DatabricksConfig, questions[0].config)
        api = await self._api(parsed, Filling(self._secrets))
        page = f"&page_token={quote(more, safe='')}" if more else ""
        path = f"{_jobs(parsed)}/runs/list?active_only=true&limit={PAGE}{page}"
        answer = await api.ask(path, answer_bytes_max=LONG_ANSWER_BYTES_MAX)
        found = members_of(answer)
        if found is None:
            raise api.unusable(answer)
        places = {str(question.handle["runId"]): place for place, question in enumerate(questions)}
        told = ((str(run.get("run_id")), run) for run in listed(found, "runs") if run.get("state"))
        seen = {places[run_id]: api.shown(judge_run(run)) for run_id, run in told if run_id in places}
        return Sightings(seen, str(found.get("next_page_token") or ""))

    async def find(self, _token: str, config: Config) -> Handle | None:
        """Return None: the next start with this token returns the run that already exists."""
        parse_config(DatabricksConfig, config)
        return None

    async def stop(self, handle: Handle, config: Config) -> StopAnswer:
        parsed = parse_config(DatabricksConfig, config)
        api = await self._api(parsed, Filling(self._secrets))
        reply = await api.tell("POST", f"{_jobs(parsed)}/runs/cancel", {"run_id": int(str(handle["runId"]))})
        stopped = judge_stop(reply, api.filling)
        # A run that has ended cannot be cancelled and counts as stopped.
        if isinstance(stopped, CannotStop) and not isinstance(await self.status(handle, config), Running):
            return Stopped()
        return stopped

    async def _start(self, request: StartRequest, filling: Filling) -> StartAnswer:
        config = parse_config(DatabricksConfig, request.config)
        path, body = _order(config, request)
        api = await self._api(config, filling)
        answer = judge_start(await api.start(f"{_jobs(config)}/{path}", body, request.may_send), "workspaceUrl")
        if not isinstance(answer, HttpAnswer):
            return answer
        run_id = (members_of(answer) or {}).get("run_id")
        if not isinstance(run_id, int) or run_id <= 0:
            return Unknown(f"accepted, but there is no run_id in the answer: {answer.text}")
        return Started({"token": request.token, "runId": str(run_id)})

    async def _api(self, config: DatabricksConfig, filling: Filling) -> JsonApi:
        base = (await address(config.workspace_url, filling)).rstrip("/")
        return JsonApi(
            sender=self._sender, settings=config, access=TargetAccess(config.auth), filling=filling, base=base
        )


def _jobs(config: DatabricksConfig) -> str:
    return f"/api/{config.api_version}/jobs"


def _order(config: DatabricksConfig, request: StartRequest) -> tuple[str, Mapping[str, Json]]:
    """Return the path and the body of the call that starts the job."""
    if config.body:
        tasks = cast("Mapping[str, Json]", config.body)
        name = f"{request.context.pipeline} {request.context.period}"
        return "runs/submit", {"run_name": name, **tasks, "idempotency_token": request.token}
    if not config.job_id.isdecimal():
        raise UnusableConfig(f"jobId must be the number of a job; found {config.job_id!r}")
    arguments = {config.arguments_as: config.arguments} if config.arguments else {}
    return "run-now", {"job_id": int(config.job_id), **arguments, "idempotency_token": request.token}
