"""The environment, read once. Only the command line and the wiring of the worker call this."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from worker.core.errors import ConfigError
from worker.core.liveness import DEFAULT_TIMING, FAST_TIMING, Timing
from worker.store.open import locate

STORE: Final = "INTERLOCK_STORE"
TIMING: Final = "INTERLOCK_TIMING"  # how fast a dead worker is noticed; all workers of a store must agree
JOB_ENVIRONMENT: Final = "INTERLOCK_JOB_ENVIRONMENT"  # variables, by name, that command jobs get of the worker's own
HTTP_ALLOW: Final = "INTERLOCK_HTTP_ALLOW"  # hosts and networks that http jobs may reach beside public ones

DEFAULT_STORE: Final = "sqlite:///interlock.db"
_TIMINGS: Final = {"default": DEFAULT_TIMING, "fast": FAST_TIMING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    store: str  # a URL that `worker.store.open` understands
    timing: Timing = DEFAULT_TIMING
    job_environment: tuple[str, ...] = ()
    http_allow: tuple[str, ...] = ()


def read_settings(environment: Mapping[str, str], *, store: str | None = None) -> Settings:
    """Read what the environment says; `store` was said on the command line and wins.

    An empty variable counts as unset, as shells and container files make them. Raises `ConfigError`.
    """
    url = store or environment.get(STORE) or DEFAULT_STORE
    locate(url)
    return Settings(
        store=url,
        timing=_timing(environment.get(TIMING) or "default"),
        job_environment=_listed(environment.get(JOB_ENVIRONMENT, "")),
        http_allow=_listed(environment.get(HTTP_ALLOW, "")),
    )


def _timing(name: str) -> Timing:
    if name not in _TIMINGS:
        raise ConfigError(f"{TIMING} is {name!r}; use {' or '.join(_TIMINGS)}")
    return _TIMINGS[name]


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
