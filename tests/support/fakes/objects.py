"""A bucket in memory, whose calls may fail or end the process that made them."""

import hashlib
from collections.abc import Callable

from consumers.inbox.objects import ObjectGone, ObjectState
from worker.core.errors import Rejected


def no_trouble(_: str, __: str) -> None:
    """Let every call through."""


class FakeObjects:
    """Objects by bucket and key. `meet` is called before and after each change, and may raise."""

    def __init__(self) -> None:
        self.bodies: dict[tuple[str, str], bytes] = {}
        self.meet: Callable[[str, str], None] = no_trouble

    def put(self, bucket: str, key: str, body: bytes) -> str:
        self.bodies[bucket, key] = body
        return etag_of(body)

    async def read(self, bucket: str, key: str, bytes_max: int) -> bytes:
        body = self.bodies.get((bucket, key))
        if body is None:
            raise ObjectGone(f"s3://{bucket}/{key} is gone")
        if len(body) > bytes_max:
            raise Rejected(f"s3://{bucket}/{key} is too large")
        return body

    async def state(self, bucket: str, key: str) -> ObjectState | None:
        body = self.bodies.get((bucket, key))
        return None if body is None else ObjectState(etag_of(body), len(body))

    async def copy(self, bucket: str, key: str, etag: str, *, to_bucket: str, to_key: str) -> None:
        self.meet("before copy", key)
        self._require(bucket, key, etag)
        self.bodies[to_bucket, to_key] = self.bodies[bucket, key]
        self.meet("after copy", key)

    async def delete(self, bucket: str, key: str, etag: str) -> None:
        self.meet("before delete", key)
        if (bucket, key) in self.bodies:
            self._require(bucket, key, etag)
            del self.bodies[bucket, key]
        self.meet("after delete", key)

    def _require(self, bucket: str, key: str, etag: str) -> None:
        body = self.bodies.get((bucket, key))
        if body is None or etag_of(body) != etag:
            raise ObjectGone(f"s3://{bucket}/{key} is gone or has other content")


def etag_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32]
