"""Detects which API an Airflow server has: `v1` is Airflow 2, `v2` is Airflow 3."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias, assert_never

from worker.core.errors import RetryLater
from worker.jobs.http.json_path import JsonApi, members_of
from worker.net.http_client import HttpAnswer
from worker.runtime.clock import Clock

Version: TypeAlias = Literal["v1", "v2"]

# Limited, because servers are upgraded while workers run.
KEPT_FOR = timedelta(minutes=15)
_KEPT_MAX = 256


@dataclass(frozen=True, slots=True)
class _Seen:
    version: Version
    good_until_s: float


class AirflowVersions:
    """Caches which API each server has."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    async def of(self, wanted: Literal["auto", "v1", "v2"], api: JsonApi) -> Version:
        """Return the configured version, or the one the server supports. Raises `RetryLater` if neither."""
        match wanted:
            case "v1" | "v2":
                return wanted
            case "auto":
                return await self._detected(api)
            case _:
                assert_never(wanted)

    async def _detected(self, api: JsonApi) -> Version:
        seen = self._seen.get(api.base)
        if seen and self._clock.monotonic() < seen.good_until_s:
            return seen.version
        version = await _ask(api)
        if len(self._seen) >= _KEPT_MAX:
            self._seen.clear()
        self._seen[api.base] = _Seen(version, self._clock.monotonic() + KEPT_FOR.total_seconds())
        return version


async def _ask(api: JsonApi) -> Version:
    newer = await api.ask("/api/v2/version")
    if _tells_version(newer):
        return "v2"
    # Only a plain 404 means an older server: a failing proxy answers with other codes.
    if newer.status == 404 and _tells_version(await api.ask("/api/v1/version")):
        return "v1"
    raise RetryLater(
        f"{api.base} answered {newer.status} to /api/v2/version and does not look like Airflow; "
        "check job.config.url, or set job.config.apiVersion"
    )


def _tells_version(answer: HttpAnswer) -> bool:
    return isinstance((members_of(answer) or {}).get("version"), str)
