"""Verifies a release: digests, bill of materials, provenance, and what is in the wheel."""

import json
import zipfile
from collections.abc import Mapping
from email.parser import Parser
from io import BytesIO
from pathlib import Path
from typing import Any

from deploy.release.artifacts import BUILD_LOCK, LOCK, PROVENANCE_END, SBOM_END, SUMS, digest, digests
from deploy.release.lockfile import read_lock
from deploy.release.provenance import commit_of, subjects
from deploy.release.source import ReleaseFailed, Source, git, tracked

PACKAGES = ("worker", "consumers", "scheduler")


def read_release(place: Path) -> dict[str, bytes]:
    """Read the files of a release and check their digests. Raises `ReleaseFailed`."""
    if not (place / SUMS).exists():
        raise ReleaseFailed(f"{place} has no {SUMS}; build a release with `make release`")
    files = {path.name: path.read_bytes() for path in sorted(place.iterdir()) if path.is_file() and path.name != SUMS}
    lines = (place / SUMS).read_text(encoding="utf-8").splitlines()
    _require_equal({name: each for each, _, name in (line.partition("  ") for line in lines)}, digests(files), SUMS)
    return files


def commit_in(files: Mapping[str, bytes]) -> str:
    """Return the commit from which a release says that it was built."""
    return commit_of(_only(files, PROVENANCE_END).decode())


def verify(files: Mapping[str, bytes], source: Source) -> list[str]:
    """Return what was found right. Raises `ReleaseFailed` for the first thing that is not."""
    statement = _only(files, PROVENANCE_END).decode()
    others = {name: content for name, content in files.items() if not name.endswith(PROVENANCE_END)}
    _require_equal(subjects(statement), digests(others), "the provenance")
    if commit_of(statement) != source.commit:
        raise ReleaseFailed(f"the provenance names the commit {commit_of(statement)}, and not {source.commit}")
    for name in (LOCK, BUILD_LOCK):
        locked = digest(git("show", f"{source.commit}:{name}"))
        if locked not in statement:
            raise ReleaseFailed(f"the provenance does not name {name} of the commit ({locked})")
    components = _verify_bill(_only(files, SBOM_END).decode(), source)
    modules = _verify_wheel(_only(files, ".whl"), source)
    _only(files, ".tar.gz")
    return [
        f"provenance: {len(others)} files of commit {source.commit[:12]}",
        f"bill of materials: {components} packages, as locked",
        f"wheel: {modules} files, as committed",
    ]


def _verify_bill(text: str, source: Source) -> int:
    locked = read_lock(git("show", f"{source.commit}:{LOCK}").decode())
    bill: dict[str, Any] = json.loads(text)
    listed = {
        each["purl"]: ",".join(p["value"] for p in each["properties"] if p["name"].endswith("sha256"))
        for each in bill["components"]
    }
    _require_equal(listed, {each.purl: ",".join(each.hashes) for each in locked}, "the bill of materials")
    if unhashed := [each.name for each in locked if not each.hashes]:
        raise ReleaseFailed(f"the lock file has no hash of {', '.join(unhashed)}; run `make lock`")
    return len(listed)


def _verify_wheel(content: bytes, source: Source) -> int:
    with zipfile.ZipFile(BytesIO(content)) as wheel:
        names = set(wheel.namelist())
        [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
        said = Parser().parsestr(wheel.read(metadata).decode())
        if broken := wheel.testzip():
            raise ReleaseFailed(f"{broken} in the wheel is damaged")
    if (said["Name"], said["Version"]) != (source.name, source.version):
        raise ReleaseFailed(f"the wheel is {said['Name']} {said['Version']}, and not {source.name} {source.version}")
    inside = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    committed = tracked(source, *PACKAGES)
    if inside != committed:
        raise ReleaseFailed(f"the wheel differs from the commit by {', '.join(sorted(inside ^ committed)[:5])}")
    return len(inside)


def compare(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> None:
    """Raise `ReleaseFailed` unless two builds are the same, byte for byte."""
    _require_equal(digests(first), digests(second), "the second build")


def _only(files: Mapping[str, bytes], end: str) -> bytes:
    found = [content for name, content in files.items() if name.endswith(end)]
    if len(found) != 1:
        raise ReleaseFailed(f"a release has one file *{end}, and this one has {len(found)}")
    return found[0]


def _require_equal(said: Mapping[str, str], found: Mapping[str, str], where: str) -> None:
    differing = sorted(name for name in {*said, *found} if said.get(name) != found.get(name))
    if differing:
        raise ReleaseFailed(f"{where} does not agree about {', '.join(differing[:5])}")
