"""Calls JSON APIs over HTTP, for Databricks and Airflow."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol, cast

from multidict import CIMultiDict

from worker.core.errors import RetryLater
from worker.core.model.values import Json
from worker.jobs.http.auth import TargetAccess
from worker.jobs.http.requests import JSON, poll_timeout
from worker.jobs.http.responses import read_object, useless
from worker.jobs.http.sending import Compose, Sender
from worker.jobs.messages import tidy
from worker.jobs.runner import Config, JobStatus, Succeeded
from worker.jobs.secrets import Filling
from worker.net.http_client import ANSWER_BYTES_MAX, HttpAnswer, Reply, Request

# The description of a run with all its tasks is long. All of it is needed, because truncated JSON cannot be parsed.
LONG_ANSWER_BYTES_MAX = 4 * 1024 * 1024


class CallSettings(Protocol):
    """CallSettings are the settings that the configurations of such targets share."""

    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def timeout(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonApi:
    """Calls one target's API as one job's configuration defines it."""

    sender: Sender
    settings: CallSettings
    access: TargetAccess
    filling: Filling
    base: str  # without a trailing slash

    async def start(self, path: str, body: Mapping[str, Json], may_send: Callable[[], bool]) -> Reply:
        """Send the start of a job once."""
        request = Request(
            method="POST",
            url=self.base + path,
            timeout=timedelta(seconds=self.settings.timeout),
            once=True,
            may_send=may_send,
        )
        return await self.sender.send(self.access, self.filling, self._filled(request, body))

    async def ask(
        self, path: str, *, body: Mapping[str, Json] | None = None, answer_bytes_max: int = ANSWER_BYTES_MAX
    ) -> HttpAnswer:
        """Send a query; one with a `body` is posted. Raises `RetryLater` without an answer."""
        request = Request(
            method="GET" if body is None else "POST",
            url=self.base + path,
            timeout=poll_timeout(self.settings.timeout),
            answer_bytes_max=answer_bytes_max,
        )
        return await self.sender.ask(self.access, self.filling, self._filled(request, body))

    async def tell(self, method: str, path: str, body: Mapping[str, Json]) -> Reply:
        """Request a change that may be requested again."""
        request = Request(method=method, url=self.base + path, timeout=poll_timeout(self.settings.timeout))
        return await self.sender.send(self.access, self.filling, self._filled(request, body))

    def unusable(self, answer: HttpAnswer) -> RetryLater:
        """Return the error for an answer that says nothing about the job."""
        size = ", too long to be read" if answer.is_cut else ""
        return useless(answer, tidy(f"the target answered {answer.status}{size}: {answer.text}", self.filling.secrets))

    def shown(self, status: JobStatus) -> JobStatus:
        """Return the status with its message shortened and without secrets."""
        if isinstance(status, Succeeded):
            return status
        return replace(status, message=tidy(status.message, self.filling.secrets))

    def _filled(self, request: Request, body: Mapping[str, Json] | None) -> Compose:
        """Return a function that builds the request; it fills in the secrets again for each send."""

        async def compose(credentials: Mapping[str, str]) -> Request:
            headers = CIMultiDict({"Accept": JSON, **await self.filling.texts(self.settings.headers)})
            headers.update(credentials)
            headers.popall("Content-Type", None)
            if body is None:
                return replace(request, headers=headers)
            headers["Content-Type"] = JSON
            filled = await self.filling.values(body)
            content = json.dumps(filled).encode()
            return replace(request, headers=headers, body=content, has_secret_body=filled != body)

        return compose


def members_of(answer: HttpAnswer) -> Mapping[str, object] | None:
    """Return the members of a complete, successful answer; None for any other answer."""
    if not answer.is_success or not answer.is_whole or answer.is_cut:
        return None
    return read_object(answer.body)


def listed(members: Mapping[str, object], name: str) -> Iterator[Mapping[str, object]]:
    """Yield the objects of a list; other members are skipped."""
    found = members.get(name)
    for each in cast("list[object]", found) if isinstance(found, list) else []:
        if isinstance(each, Mapping):
            yield cast("Mapping[str, object]", each)


def same_place(config: Config, *names: str) -> str:
    """Return a key that is equal for jobs with the same access: the named configuration keys as JSON."""
    return json.dumps([config.get(name) for name in (*names, "auth", "headers")], sort_keys=True, default=str)
