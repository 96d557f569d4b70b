"""Signature Version 4 of AWS, for requests whose body is bytes and whose path is `/`.

The library signs any request, and derives the key of the day for each one. That took a quarter of a call's CPU time.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from hmac import digest
from typing import Final, Protocol

TIMESTAMP: Final = "%Y%m%dT%H%M%SZ"
ALGORITHM: Final = "AWS4-HMAC-SHA256"
UNSIGNED: Final = frozenset({"user-agent"})  # proxies may change it
_KEYS_KEPT: Final = 16  # of a few credentials on two days


class SigningKeys(Protocol):
    @property
    def access_key(self) -> str: ...

    @property
    def secret_key(self) -> str: ...

    @property
    def token(self) -> str | None: ...


def signed_headers(
    headers: Mapping[str, str],
    body: bytes,
    *,
    host: str,
    region: str,
    service: str,
    credentials: SigningKeys,
    now: datetime,
) -> dict[str, str]:
    """Return the headers of a `POST` of `body` to `/` with those that sign it. `now` is in UTC."""
    timestamp = now.strftime(TIMESTAMP)
    sent = {**headers, "X-Amz-Date": timestamp}
    if credentials.token:
        sent["X-Amz-Security-Token"] = credentials.token
    covered = {name.lower(): " ".join(value.split()) for name, value in sent.items() if name.lower() not in UNSIGNED}
    covered["host"] = host
    lines = [f"{name}:{covered[name]}\n" for name in sorted(covered)]
    names = ";".join(sorted(covered))
    canonical = f"POST\n/\n\n{''.join(lines)}\n{names}\n{sha256(body).hexdigest()}"
    scope = f"{timestamp[:8]}/{region}/{service}/aws4_request"
    text = f"{ALGORITHM}\n{timestamp}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
    signature = digest(_key(credentials.secret_key, timestamp[:8], region, service), text.encode(), "sha256").hex()
    credential = f"Credential={credentials.access_key}/{scope}"
    sent["Authorization"] = f"{ALGORITHM} {credential}, SignedHeaders={names}, Signature={signature}"
    return sent


@lru_cache(maxsize=_KEYS_KEPT)
def _key(secret: str, day: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = digest(key, part.encode(), "sha256")
    return key
