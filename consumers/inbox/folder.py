"""Watch a folder as if it were a bucket, so that the same rules run on one machine.

The folder is listed again and again, because that works on every file system, network ones included, and finds what was
written while nobody watched. A file is reported once it is the same in two listings: then its writer is done with it.
Names that begin with a dot or end in `.tmp` are left out: write under such a name, then rename.
"""

import asyncio
import hashlib
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from consumers.inbox.notifications import Happened, ObjectNotification
from consumers.inbox.objects import ObjectGone, ObjectState
from worker.core.errors import ConfigError, Rejected, RetryLater
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded

EVERY_S: Final = 1.0
FILES_MAX: Final = 200_000
AT_ONCE: Final = 64
_CHUNK: Final = 1024 * 1024

TakeIn: TypeAlias = Callable[[ObjectNotification], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Stamp:
    """_Stamp is what shows that a file changed, without reading it."""

    modified_ns: int
    size: int


class FolderObjects:
    """Implements `Objects` on a folder, which is the only bucket; the etag is a hash of the content."""

    def __init__(self, root: Path, bucket: str) -> None:
        self._root, self._bucket = root, bucket

    async def read(self, bucket: str, key: str, bytes_max: int) -> bytes:
        path = self._path(bucket, key)
        found = await self.state(bucket, key)
        if found is None:
            raise ObjectGone(f"{path} is gone")
        if found.size > bytes_max:
            raise Rejected(f"{path} has {found.size:,} bytes; {bytes_max:,} is the most")
        return await asyncio.to_thread(path.read_bytes)

    async def state(self, bucket: str, key: str) -> ObjectState | None:
        return await asyncio.to_thread(_state, self._path(bucket, key))

    async def copy(self, bucket: str, key: str, etag: str, *, to_bucket: str, to_key: str) -> None:
        source, target = self._path(bucket, key), self._path(to_bucket, to_key)
        await self._require(source, etag)
        await asyncio.to_thread(_copy, source, target)

    async def delete(self, bucket: str, key: str, etag: str) -> None:
        path = self._path(bucket, key)
        if await asyncio.to_thread(path.exists):
            await self._require(path, etag)
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _require(self, path: Path, etag: str) -> None:
        found = await asyncio.to_thread(_state, path)
        if found is None or found.etag != etag:
            raise ObjectGone(f"{path} is gone or has other content by now")

    def _path(self, bucket: str, key: str) -> Path:
        if bucket != self._bucket:
            raise ConfigError(f"{self._root} stands for the bucket {self._bucket}, not for {bucket}; change the rule")
        path = self._root / key
        if not path.resolve().is_relative_to(self._root.resolve()):
            raise Rejected(f"{key!r} is outside of {self._root}")
        return path


class FolderWatch:
    """Reports the files of a folder. Run `run` until it is cancelled."""

    def __init__(self, root: Path, bucket: str, clock: Clock, take_in: TakeIn) -> None:
        self._root, self._bucket, self._clock, self._take_in = root, bucket, clock, take_in
        self._listed: dict[str, _Stamp] = {}
        self._reported: dict[str, _Stamp] = {}

    async def run(self) -> None:
        while True:
            await self.look()
            await self._clock.sleep(EVERY_S)

    async def look(self) -> int:
        """List the folder once and report what changed; return how many files were reported."""
        listed = await asyncio.to_thread(self._list)
        settled = [key for key, stamp in listed.items() if self._listed.get(key) == stamp]
        self._listed = listed
        fresh = [key for key in settled if self._reported.get(key) != listed[key]]
        gone = [key for key in self._reported if key not in listed]
        told = await gather_bounded([self._reporting(key, listed[key]) for key in fresh], at_once=AT_ONCE)
        told += await gather_bounded([self._forgetting(key) for key in gone], at_once=AT_ONCE)
        return sum(told)

    def _list(self) -> dict[str, _Stamp]:
        found = dict(_files(self._root))
        if len(found) > FILES_MAX:
            raise Rejected(f"{self._root} has more than {FILES_MAX:,} files; watch a folder below it")
        return found

    def _reporting(self, key: str, stamp: _Stamp) -> Callable[[], Awaitable[bool]]:
        async def report() -> bool:
            state = await asyncio.to_thread(_state, self._root / key)
            if state is None:
                return False
            is_told = await self._tell(key, Happened.CREATED, state)
            if is_told:
                self._reported[key] = stamp
            return is_told

        return report

    def _forgetting(self, key: str) -> Callable[[], Awaitable[bool]]:
        async def report() -> bool:
            is_told = await self._tell(key, Happened.DELETED, ObjectState("", 0))
            if is_told:
                self._reported.pop(key, None)
            return is_told

        return report

    async def _tell(self, key: str, happened: Happened, state: ObjectState) -> bool:
        news = ObjectNotification(
            bucket=self._bucket,
            key=key,
            happened=happened,
            etag=state.etag,
            size=state.size if happened is Happened.CREATED else None,
            at=self._clock.now(),
        )
        try:
            await self._take_in(news)
        except RetryLater:
            return False  # the next listing reports it
        return True


def _files(root: Path) -> Iterator[tuple[str, _Stamp]]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.startswith(".") or name.endswith(".tmp"):
                continue
            path = Path(folder, name)
            try:
                found = path.stat()
            except FileNotFoundError:
                continue
            yield path.relative_to(root).as_posix(), _Stamp(found.st_mtime_ns, found.st_size)


def _state(path: Path) -> ObjectState | None:
    hashed, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                hashed.update(chunk)
                size += len(chunk)
    except FileNotFoundError:
        return None
    return ObjectState(hashed.hexdigest()[:32], size)


def _copy(source: Path, target: Path) -> None:
    """Copy a file so that its target is whole or not there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.tmp")
    shutil.copyfile(source, unfinished)
    with unfinished.open("rb+") as file:
        os.fsync(file.fileno())
    unfinished.replace(target)
