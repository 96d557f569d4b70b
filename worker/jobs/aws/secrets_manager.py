"""Reads secrets from AWS Secrets Manager.

A reference is `secretsmanager://name`, or `secretsmanager://name#key` for one member of the secret.

Each secret is read once for all callers and cached for five minutes, so that polls cost nothing. After a target rejects
a secret, it is read again, so that a rotated secret takes effect at once.
"""

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, cast

from worker.core.errors import Rejected
from worker.core.run.state import FailureCategory
from worker.jobs.aws.client import Aws
from worker.jobs.aws.errors import AwsTrouble
from worker.jobs.aws.responses import text
from worker.jobs.secrets import MANAGED
from worker.runtime.clock import Clock

KEPT_S: Final = 300.0
# A value read more recently than this is the one that the target rejected. Reading it again would cost one request per
# rejection.
NEW_FOR_S: Final = 30.0
KEPT_MAX: Final = 256  # each at most 64 KiB, the service's own limit


@dataclass(frozen=True, slots=True)
class _Kept:
    value: str | None  # None: the secret does not exist
    read_at_s: float

    @property
    def good_for_s(self) -> float:
        return NEW_FOR_S if self.value is None else KEPT_S  # a missing secret is likely to be created soon


class SecretsManagerSecrets:
    """Reads secrets and caches them for a limited time, in memory only."""

    def __init__(self, aws: Aws, clock: Clock) -> None:
        self._aws, self._clock = aws, clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._reading: dict[str, asyncio.Lock] = {}

    async def read(self, name: str) -> str | None:
        secret_id, _, member = name.removeprefix(MANAGED).partition("#")
        whole = await self._secret(secret_id)
        return _member(whole, member) if whole is not None and member else whole

    def forget(self, name: str) -> bool:
        secret_id = name.removeprefix(MANAGED).partition("#")[0]
        kept = self._kept.get(secret_id)
        if kept is None or self._age_s(kept) < NEW_FOR_S:
            return False
        del self._kept[secret_id]
        return True

    async def _secret(self, secret_id: str) -> str | None:
        # Concurrent readers wait here and find the value that the first one read: a hundred runs cause one request.
        lock = self._reading.setdefault(secret_id, asyncio.Lock())
        try:
            async with lock:
                kept = self._kept.get(secret_id)
                if kept is None or self._age_s(kept) >= kept.good_for_s:
                    kept = _Kept(await self._fetch(secret_id), self._clock.monotonic())
                    self._keep(secret_id, kept)
                return kept.value
        finally:
            if not lock.locked():
                self._reading.pop(secret_id, None)

    async def _fetch(self, secret_id: str) -> str | None:
        try:
            answer = await self._aws.call("secretsmanager", "GetSecretValue", {"SecretId": secret_id})
        except AwsTrouble as trouble:
            if trouble.code == "ResourceNotFoundException":
                return None
            if trouble.category is FailureCategory.PERMANENT:
                hint = "allow the worker secretsmanager:GetSecretValue, and kms:Decrypt if the secret has its own key"
                raise Rejected(f"the secret {secret_id} cannot be read: {trouble}; {hint}") from trouble
            raise
        value = text(answer, "SecretString")
        if not value:
            raise Rejected(f"the secret {secret_id} holds no text; store it as one")
        return value

    def _keep(self, secret_id: str, kept: _Kept) -> None:
        self._kept[secret_id] = kept
        self._kept.move_to_end(secret_id)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    def _age_s(self, kept: _Kept) -> float:
        return self._clock.monotonic() - kept.read_at_s


def _member(whole: str, name: str) -> str | None:
    """Return one member of a secret that is a JSON object.

    None if the secret is not an object, or has no text or number of that name.
    """
    try:
        found = cast("object", json.loads(whole))
    except (ValueError, RecursionError):
        return None
    value = cast("dict[str, object]", found).get(name) if isinstance(found, dict) else None
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
