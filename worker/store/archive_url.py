"""Parses where history is archived: `s3://BUCKET/PREFIX` or `file:DIRECTORY`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from worker.core.errors import ConfigError

S3: Final = "s3://"
FILE: Final = "file:"

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"[A-Za-z0-9!_.*'()=/-]{0,400}")


@dataclass(frozen=True, slots=True)
class S3Archive:
    """Names a bucket, and the prefix of the archive's objects in it, which is empty or ends in a slash."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{S3}{self.bucket}/{self.prefix}".rstrip("/")


@dataclass(frozen=True, slots=True)
class FileArchive:
    directory: Path

    def __str__(self) -> str:
        return f"{FILE}{self.directory}"


ArchiveUrl: TypeAlias = S3Archive | FileArchive


def parse_archive(name: str, text: str) -> ArchiveUrl | None:
    """Parse the text of the setting `name`; None if it is empty. Raises `ConfigError`."""
    if not text:
        return None
    if text.startswith(S3):
        bucket, _, prefix = text.removeprefix(S3).partition("/")
        prefix = prefix.strip("/")
        if _BUCKET.fullmatch(bucket) and _PREFIX.fullmatch(prefix) and ".." not in prefix.split("/"):
            return S3Archive(bucket, f"{prefix}/" if prefix else "")
    elif text.startswith(FILE):
        path = text.removeprefix(FILE)
        path = f"/{path.lstrip('/')}" if path.startswith("//") else path  # `file:///var/archive`
        if path:
            return FileArchive(Path(path).absolute())
    raise ConfigError(f"{name} is {text!r}, which names no archive; use s3://BUCKET/PREFIX or file:DIRECTORY")
