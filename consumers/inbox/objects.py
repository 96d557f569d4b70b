"""Objects: the port to what a bucket or a folder holds."""

from dataclasses import dataclass
from typing import Final, Protocol

from worker.core.errors import Rejected

MANIFEST_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ObjectState:
    """ObjectState is an object as it is now."""

    etag: str
    size: int


class ObjectGone(Rejected):
    """Reports that an object is not there, or no longer has the content that was asked for."""


class Objects(Protocol):
    """Objects reads and moves objects. Every call may raise `RetryLater` or `Rejected`."""

    async def read(self, bucket: str, key: str, bytes_max: int) -> bytes:
        """Return the content of an object. Raises `ObjectGone`, and `Rejected` if it is larger."""
        ...

    async def state(self, bucket: str, key: str) -> ObjectState | None:
        """Return the present state of an object; None if it does not exist."""
        ...

    async def copy(self, bucket: str, key: str, etag: str, *, to_bucket: str, to_key: str) -> None:
        """Copy an object that still has this etag. Raises `ObjectGone` if it has another, or is not there."""
        ...

    async def delete(self, bucket: str, key: str, etag: str) -> None:
        """Delete an object that still has this etag. Raises `ObjectGone` if it has another."""
        ...
