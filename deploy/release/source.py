"""Reads what is released: the committed files, their commit and its time."""

import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


class ReleaseFailed(Exception):
    """A release could not be built, or is not what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Source names a commit: everything that a release depends on besides the locked build tools."""

    commit: str
    epoch: int  # when it was committed, in seconds: the time of every file of the release
    name: str
    version: str


def read_source(commit: str = "HEAD") -> Source:
    """Read a commit of this repository. Raises `ReleaseFailed` if git does not know it."""
    found, epoch = git("log", "-1", "--format=%H %ct", commit, "--").decode().split()
    project = tomllib.loads(git("show", f"{found}:pyproject.toml").decode())["project"]
    return Source(commit=found, epoch=int(epoch), name=project["name"], version=project["version"])


def export(source: Source, place: Path) -> None:
    """Write the files of a commit into an empty folder: what is not committed cannot get into a release."""
    archive = git("-c", "tar.umask=0022", "archive", "--format=tar", source.commit)
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(place, filter="data")


def tracked(source: Source, *folders: str) -> set[str]:
    """Return the files of a commit below these folders."""
    listed = git("ls-tree", "-r", "--name-only", "-z", source.commit, "--", *folders)
    return {name for name in listed.decode().split("\0") if name}


def is_clean() -> bool:
    """Return whether the working copy is its commit."""
    return not git("status", "--porcelain").strip()


def git(*words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False, timeout=60)  # noqa: S603, S607
    if done.returncode != 0:
        raise ReleaseFailed(f"git {' '.join(words[:3])} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
