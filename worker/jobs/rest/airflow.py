"""Runs DAGs on Airflow, by the stable REST API of Airflow 2 (`v1`) or Airflow 3 (`v2`).

The token is the `dag_run_id`. Airflow allows one run per id, so it refuses a repeated start with 409. A query for that
id then shows whether it was a repeat.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final, cast
from urllib.parse import quote

from worker.core.errors import Rejected, RetryLater
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.core.time.timestamps import parse_rfc3339
from worker.jobs.http.auth import TargetAccess
from worker.jobs.http.json_path import LONG_ANSWER_BYTES_MAX, JsonApi, listed, members_of, same_place
from worker.jobs.http.requests import address
from worker.jobs.http.responses import judge_start, judge_stop, read_object
from worker.jobs.http.sending import Sender, answered, send_limit
from worker.jobs.rest.airflow_versions import AirflowVersions, Version
from worker.jobs.runner import (
    Config,
    Failed,
    Guarantee,
    Handle,
    JobStatus,
    Refused,
    Running,
    Sightings,
    StartAnswer,
    Started,
    StartRequest,
    StatusQuery,
    StopAnswer,
    Stopped,
    Succeeded,
    Traits,
    Unknown,
)
from worker.jobs.secrets import Filling, SecretSource
from worker.jobs.spec_fields import UnusableConfig, parse_config
from worker.jobs.specs import AirflowConfig
from worker.net.http_client import HttpAnswer, HttpClient
from worker.runtime.clock import Clock

PAGE: Final = 100  # runs per page


class AirflowRunner:
    def __init__(self, client: HttpClient, clock: Clock, secrets: SecretSource) -> None:
        self._sender = Sender(client, clock)
        self._versions = AirflowVersions(clock)
        self._secrets = secrets

    def traits(self, config: Config) -> Traits:
        parsed = parse_config(AirflowConfig, config)
        access = TargetAccess(parsed.auth, login_url="" if parsed.api_version == "v1" else "/auth/token")
        once = send_limit(access, timedelta(seconds=parsed.timeout))
        # Before the start the server may be asked for its version, and after it for a run that already exists.
        return Traits(guarantee=Guarantee.EXACTLY_ONCE, can_stop=True, send_timeout=4 * once)

    async def start(self, request: StartRequest) -> StartAnswer:
        filling = Filling(self._secrets)
        return await answered(self._start(request, filling), filling)

    async def status(self, handle: Handle, config: Config) -> JobStatus:
        parsed = parse_config(AirflowConfig, config)
        api, version = await self._api(parsed, Filling(self._secrets))
        answer = await self._look(api, version, parsed.dag_id, str(handle["dagRunId"]))
        return _read_status(answer, api)

    def group(self, question: StatusQuery) -> str:
        return same_place(question.config, "url", "apiVersion")

    async def look(self, questions: Sequence[StatusQuery], more: str = "") -> Sightings:
        """List the unfinished runs of some DAGs."""
        api, version = await self._api(parse_config(AirflowConfig, questions[0].config), Filling(self._secrets))
        names = [(str(question.config["dagId"]), str(question.handle["dagRunId"])) for question in questions]
        body = _running_ones({dag_id for dag_id, _ in names}, offset := int(more or 0))
        answer = await api.ask(f"{_runs(version, '~')}/list", body=body, answer_bytes_max=LONG_ANSWER_BYTES_MAX)
        found = members_of(answer)
        if found is None:
            raise api.unusable(answer)
        runs = list(listed(found, "dag_runs"))
        states = {(run.get("dag_id"), run.get("dag_run_id")): run.get("state") for run in runs}
        told = {place: state for place, name in enumerate(names) if (state := states.get(name))}
        seen = {place: api.shown(Running(str(state))) for place, state in told.items()}
        total, read = found.get("total_entries"), offset + len(runs)
        return Sightings(seen, str(read) if runs and isinstance(total, int) and read < total else "")

    async def find(self, token: str, config: Config) -> Handle | None:
        parsed = parse_config(AirflowConfig, config)
        api, version = await self._api(parsed, Filling(self._secrets))
        answer = await self._look(api, version, parsed.dag_id, token)
        if _is_missing(answer, token):
            return None
        _read_status(answer, api)
        return _handle(token)

    async def stop(self, handle: Handle, config: Config) -> StopAnswer:
        """Mark the run as failed, which ends its tasks; skip an ended run, whose history must not change."""
        if not isinstance(await self.status(handle, config), Running):
            return Stopped()
        parsed = parse_config(AirflowConfig, config)
        api, version = await self._api(parsed, Filling(self._secrets))
        path = f"{_runs(version, parsed.dag_id)}/{quote(str(handle['dagRunId']), safe='')}"
        return judge_stop(await api.tell("PATCH", path, {"state": "failed"}), api.filling)

    # --- start --------------------------------------------------------------------------------------------------------

    async def _start(self, request: StartRequest, filling: Filling) -> StartAnswer:
        config = parse_config(AirflowConfig, request.config)
        conf = _conf(config)
        api, version = await self._api(config, filling)
        body: dict[str, Json] = {"dag_run_id": request.token, "conf": conf, **_logical_date(config, version)}
        reply = await api.start(_runs(version, config.dag_id), body, request.may_send)
        if isinstance(reply, HttpAnswer) and reply.status == 409:
            return await self._settle(reply, api, version, config, request.token)
        answer = judge_start(reply, "url")
        if not isinstance(answer, HttpAnswer):
            return answer
        if (members_of(answer) or {}).get("dag_run_id") != request.token:
            return Unknown(f"accepted, but the answer is not about this DAG run: {answer.text}")
        return Started(_handle(request.token))

    async def _settle(
        self, conflict: HttpAnswer, api: JsonApi, version: Version, config: AirflowConfig, token: str
    ) -> StartAnswer:
        """Resolve a 409: either our id exists, which means started, or another run has the logical date."""
        try:
            seen = await self._look(api, version, config.dag_id, token)
        except (RetryLater, Rejected) as problem:
            return Unknown(f"answered 409, and then {problem}")
        if (members_of(seen) or {}).get("dag_run_id") == token:
            return Started(_handle(token))
        if _is_missing(seen, token):
            hint = "a DAG takes each logical date once; see job.config.logicalDate"
            return Refused(FailureCategory.PERMANENT, f"answered 409 for another run ({hint}): {conflict.text}")
        return Unknown(f"answered 409, and then {seen.status} about the run: {seen.text}")

    # --- queries ------------------------------------------------------------------------------------------------------

    async def _look(self, api: JsonApi, version: Version, dag_id: str, run_id: str) -> HttpAnswer:
        path = f"{_runs(version, dag_id)}/{quote(run_id, safe='')}"
        return await api.ask(path, answer_bytes_max=LONG_ANSWER_BYTES_MAX)

    async def _api(self, config: AirflowConfig, filling: Filling) -> tuple[JsonApi, Version]:
        base = (await address(config.url, filling)).rstrip("/")
        # The version needs no authentication. A name and a password mean different things in the two versions.
        open_to_all = config.auth is None or config.auth.type == "basic"
        access = TargetAccess(None) if open_to_all else TargetAccess(config.auth)
        asking = JsonApi(sender=self._sender, settings=config, access=access, filling=filling, base=base)
        version = await self._versions.of(config.api_version, asking)
        access = TargetAccess(config.auth, login_url=f"{base}/auth/token" if version == "v2" else "")
        return JsonApi(sender=self._sender, settings=config, access=access, filling=filling, base=base), version


def _handle(token: str) -> Handle:
    return {"token": token, "dagRunId": token}


def _runs(version: Version, dag_id: str) -> str:
    return f"/api/{version}/dags/{quote(dag_id, safe='')}/dagRuns"


def _running_ones(dag_ids: Collection[str], offset: int) -> dict[str, Json]:
    """Return the query body that lists the unfinished runs of some DAGs."""
    states = ["queued", "running"]
    return {"dag_ids": sorted(dag_ids), "states": states, "page_limit": PAGE, "page_offset": offset}


def _logical_date(config: AirflowConfig, version: Version) -> dict[str, Json]:
    """Return the configured logical date.

    Without one, Airflow 3 requires an explicit null, and Airflow 2 uses the current time.
    """
    if config.logical_date:
        return {"logical_date": config.logical_date}
    return {"logical_date": None} if version == "v2" else {}


def _conf(config: AirflowConfig) -> Mapping[str, Json]:
    given = config.body or {}
    if isinstance(given, str):
        try:
            given = cast("object", json.loads(given))
        except (ValueError, RecursionError):
            given = None
    if not isinstance(given, Mapping):
        raise UnusableConfig("body must be a mapping, or a JSON text of one: it is the run's `conf`")
    return {**cast("Mapping[str, Json]", given), **config.arguments}


def _is_missing(answer: HttpAnswer, run_id: str) -> bool:
    """Return whether Airflow itself reports that the run does not exist.

    A proxy or another version answers 404 to everything.
    """
    return answer.status == 404 and read_object(answer.body) is not None and run_id in answer.text


def _read_status(answer: HttpAnswer, api: JsonApi) -> JobStatus:
    """Interpret a DAG run. Raises `RetryLater` if the answer does not contain one."""
    run = members_of(answer) or {}
    state, ended = run.get("state"), run.get("end_date")
    if not isinstance(state, str) or not state:
        raise api.unusable(answer)
    ended_at = parse_rfc3339(ended) if isinstance(ended, str) else None
    match state:
        case "success":
            return Succeeded(ended_at)
        case "failed":
            # Airflow reports neither the reason nor whether it was a timeout of its own.
            return Failed(FailureCategory.TRANSIENT, "the DAG run failed; its tasks' logs in Airflow say why", ended_at)
        case _:
            return api.shown(Running(state))
