"""Checks the machine: versions, and the disk of a store in a file."""

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

from worker.operations.doctor.report import Diagnosis, doubtful, fine, wrong

AREA: Final = "machine"
LIBRARIES: Final = ("aiobotocore", "aiohttp", "pydantic", "apscheduler", "slack-sdk")
# Below the first limit a day's changes may not fit; below the second the next commits may not.
FREE_LOW: Final = 1_000_000_000
FREE_MIN: Final = 100_000_000


def look_at_program() -> Iterator[Diagnosis]:
    yield fine(AREA, "interlock", f"version {version('interlock')} on Python {platform.python_version()}")
    known = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    yield fine(AREA, "libraries", known)


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def look_at_disk(file: Path, free_at: Callable[[Path], int] = free_bytes) -> Iterator[Diagnosis]:
    """Check the free space for a store in a file, and the write permission on its folder.

    SQLite keeps its log in the same folder.
    """
    folder = file.resolve().parent
    if not folder.is_dir():
        yield wrong(AREA, "disk", f"the folder {folder} does not exist", "create it, or name another store")
        return
    if not os.access(folder, os.W_OK):
        remedy = "give the worker's user the right, or move the file"
        yield wrong(AREA, "disk", f"{folder} cannot be written, and SQLite keeps its log next to the file", remedy)
    free = free_at(folder)
    said = f"{free / 1e9:,.1f} GB are free at {folder}"
    if free < FREE_MIN:
        yield wrong(AREA, "disk", said, "make room: commits will fail")
    elif free < FREE_LOW:
        yield doubtful(AREA, "disk", said, "make room before it is used up")
    else:
        yield fine(AREA, "disk", said)
