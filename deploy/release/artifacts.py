"""Builds the files of a release from a commit, and writes them with their digests."""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.release.lockfile import read_lock
from deploy.release.provenance import provenance
from deploy.release.sbom import bill_of_materials
from deploy.release.source import ReleaseFailed, Source, export

LOCK: Final = "requirements/runtime.txt"
BUILD_LOCK: Final = "requirements/build.txt"
SUMS: Final = "SHA256SUMS"
SBOM_END: Final = ".cdx.json"
PROVENANCE_END: Final = ".intoto.json"
BUILD_S: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Surroundings are what must not matter to a build: who builds, where and when."""

    umask: int
    zone: str
    language: str


# As different as two machines may be.
FIRST: Final = Surroundings(umask=0o022, zone="UTC", language="C.UTF-8")
SECOND: Final = Surroundings(umask=0o077, zone="Pacific/Kiritimati", language="C")


def build(source: Source, surroundings: Surroundings = FIRST) -> dict[str, bytes]:
    """Return the files of a release by name. Raises `ReleaseFailed` if the build tools fail."""
    with tempfile.TemporaryDirectory(prefix="interlock-release-") as name:
        place = Path(name) / "source"
        place.mkdir()
        export(source, place)
        _run_backend(place, Path(name) / "built", source, surroundings)
        files = {path.name: path.read_bytes() for path in sorted((Path(name) / "built").iterdir())}
        lock = (place / LOCK).read_text(encoding="utf-8")
        inputs = {lock_file: digest((place / lock_file).read_bytes()) for lock_file in (LOCK, BUILD_LOCK)}
    stem = f"{source.name}-{source.version}"
    files[f"{stem}{SBOM_END}"] = bill_of_materials(source, read_lock(lock)).encode()
    # Last, because it is about all others.
    statement = provenance(source, digests(files), inputs).encode()
    files[f"{stem}{PROVENANCE_END}"] = statement
    return files


def _run_backend(place: Path, target: Path, source: Source, surroundings: Surroundings) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HATCH", "LC_"))},
        "SOURCE_DATE_EPOCH": str(source.epoch),
        "TZ": surroundings.zone,
        "LANG": surroundings.language,
    }
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    done = subprocess.run(  # noqa: S603
        command,
        cwd=place,
        env=environment,
        umask=surroundings.umask,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_S,
    )
    if done.returncode != 0:
        raise ReleaseFailed(f"hatchling ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: digest(content) for name, content in files.items()}


def write(files: Mapping[str, bytes], place: Path) -> None:
    """Replace the files of `place` by these and their digests, in the form that `sha256sum --check` reads."""
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        if old.is_file():
            old.unlink()
    for name, content in files.items():
        (place / name).write_bytes(content)
    lines = [f"{each}  {name}\n" for name, each in sorted(digests(files).items())]
    (place / SUMS).write_text("".join(lines), encoding="utf-8")
