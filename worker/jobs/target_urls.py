"""Lists the addresses in a job's configuration, as far as they are written out."""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from worker.core.model.pipeline import Job, JobType
from worker.core.model.values import Json

_BEHIND_HTTP: Final = frozenset({JobType.HTTP, JobType.AIRFLOW, JobType.DATABRICKS})
_KEYS: Final = ("url", "workspaceUrl", "statusUrl", "stopUrl")


def hosts_of(job: Job) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each host that the job sends requests to, with the path of its key.

    A host that a template supplies is unknown and is skipped.
    """
    if job.type in _BEHIND_HTTP:
        yield from hosts_in(job.config)


def hosts_in(config: Mapping[str, Json]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each host that a configuration for a target behind HTTP names, with the path of its key."""
    auth = config.get("auth")
    found: list[tuple[tuple[str, ...], Json]] = [((key,), config.get(key)) for key in _KEYS]
    if isinstance(auth, Mapping):
        found.append((("auth", "tokenUrl"), auth.get("tokenUrl")))
    for path, url in found:
        if isinstance(url, str) and (host := _host(url)):
            yield path, host


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.scheme in {"http", "https"} else None
    except ValueError:
        return None  # the runner reports what is wrong with it
    return None if host is None or "$" in parts.netloc else host
