"""Public keys of AWS load balancers, by id: fetched once, cached, and never at a caller's will."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from worker.core.errors import ConfigError, RetryLater
from worker.net.http_client import HttpAnswer, HttpClient, Request
from worker.runtime.clock import Clock

KEPT_S: Final = 6 * 3600.0
UNKNOWN_FOR_S: Final = 60.0  # a key that does not exist, or could not be fetched
KEPT_MAX: Final = 64
FETCHES_MAX: Final = 20  # in a minute: anyone can invent ids of keys
PEM_MAX: Final = 4_096
ALB: Final = "INTERLOCK_WEB_ALB"

_ARN: Final = re.compile(
    r"arn:(?P<partition>[a-z-]+):elasticloadbalancing:(?P<region>[a-z0-9-]+):\d{12}:loadbalancer/app/[\w-]+/[0-9a-f]+"
)

# Returns the text of a key by its id; None if there is none. Raises `RetryLater`.
FetchKey: TypeAlias = Callable[[str], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class _KeptKey:
    pem: str | None
    at_s: float

    @property
    def good_for_s(self) -> float:
        return UNKNOWN_FOR_S if self.pem is None else KEPT_S


class KeySource:
    """Caches keys. What is not a key's id must not reach it."""

    def __init__(self, fetch: FetchKey, clock: Clock) -> None:
        self._fetch, self._clock = fetch, clock
        self._kept: OrderedDict[str, _KeptKey] = OrderedDict()
        self._fetching = asyncio.Lock()
        self._fetches: list[float] = []

    async def key(self, kid: str) -> str | None:
        """Return a key; None if there is none. Raises `RetryLater` if it cannot be fetched now."""
        if (kept := self._cached(kid)) is not None:
            return kept.pem
        async with self._fetching:  # one at a time: requests of one page share the key
            if (kept := self._cached(kid)) is not None:
                return kept.pem
            self._count()
            pem = await self._fetch(kid)
            self._kept[kid] = _KeptKey(pem, self._clock.monotonic())
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
            return pem

    def _cached(self, kid: str) -> _KeptKey | None:
        kept = self._kept.get(kid)
        is_good = kept is not None and self._clock.monotonic() - kept.at_s < kept.good_for_s
        return kept if is_good else None

    def _count(self) -> None:
        now = self._clock.monotonic()
        self._fetches = [at for at in self._fetches if now - at < 60.0]
        if len(self._fetches) >= FETCHES_MAX:
            raise RetryLater("too many unknown keys of load balancers were asked for; try again in a minute")
        self._fetches.append(now)


def keys_of_region(http: HttpClient, arn: str) -> FetchKey:
    """Return what fetches the keys of a load balancer's region. Raises `ConfigError`."""
    base = key_address(arn)

    async def fetch(kid: str) -> str | None:
        reply = await http.send(Request(method="GET", url=f"{base}/{kid}", timeout=timedelta(seconds=5)))
        match reply:
            case HttpAnswer(status=200, is_cut=False) if len(reply.body) <= PEM_MAX:
                return reply.text
            case HttpAnswer(status=403 | 404):
                return None
            case HttpAnswer():
                raise RetryLater(f"the keys of load balancers at {base} answered {reply.status}; try again")
            case _:
                raise RetryLater(f"the keys of load balancers at {base} cannot be read: {reply.message}; try again")

    return fetch


def key_address(arn: str) -> str:
    """Return where the keys of a load balancer's region are. Raises `ConfigError`."""
    found = _ARN.fullmatch(arn)
    if found is None:
        raise ConfigError(f"{ALB} is {arn!r}, which is not the ARN of an application load balancer")
    partition, region = found["partition"], found["region"]
    match partition:
        case "aws":
            return f"https://public-keys.auth.elb.{region}.amazonaws.com"
        case "aws-us-gov":
            return f"https://s3-{region}.amazonaws.com/aws-elb-public-keys-prod-{region}"
        case _:
            raise ConfigError(f"{ALB} is in the partition {partition}, the address of whose keys is not known here")
