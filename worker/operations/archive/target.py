"""The port to where an archive is kept, and its adapter for a directory."""

import asyncio
import os
from pathlib import Path
from typing import Protocol

from worker.core.errors import RetryLater


class ArchiveTarget(Protocol):
    """Keeps objects by name. The same name replaces an earlier object."""

    async def put(self, name: str, content: bytes) -> None:
        """Store an object durably before returning. Raises `RetryLater`, which says what to do."""
        ...


class DirectoryTarget:
    """Keeps each object as a file below a directory, which it makes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def put(self, name: str, content: bytes) -> None:
        try:
            await asyncio.to_thread(self._write, name, content)
        except OSError as error:
            what = f"the archive cannot write {self._directory / name}: {error.strerror}"
            raise RetryLater(f"{what}; check that the disk has room and that the worker may write there") from error

    def _write(self, name: str, content: bytes) -> None:
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # A name of its own: two processes may archive the same window at once.
        partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # or a crash of the machine could lose the name
        finally:
            os.close(folder)
