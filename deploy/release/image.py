"""`make image`: builds the image for both architectures, with labels, bill of materials and provenance.

It needs Docker with buildx, and the base image by its digest: BASE=NAME:TAG@sha256:... in the environment, or
BASE=resolve to ask the registry once for the digest of the Dockerfile's tag. The archive is then read back: platforms,
labels, bill of materials, provenance and every digest. With --dry-run it shows the command; without an engine it shows
it too, and exits with 3.
"""

import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from deploy.release.image_check import DIGEST, PLATFORMS, check_image, is_pinned
from deploy.release.source import ROOT, ReleaseFailed, Source, read_source

BASE = "BASE"
RESOLVE = "resolve"


def label_arguments(source: Source) -> list[str]:
    """Return the arguments of a build that the labels of the image are made from."""
    created = datetime.fromtimestamp(source.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    arguments = {"VERSION": source.version, "REVISION": source.commit, "CREATED": created}
    return [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]


def command(source: Source, target: Path, base: str) -> list[str]:
    """Return the command that builds an archive of the image, which `skopeo` or `docker buildx imagetools` can push."""
    return [
        *("docker", "buildx", "build", "--platform", ",".join(PLATFORMS)),
        *label_arguments(source),
        *("--build-arg", f"SOURCE_DATE_EPOCH={source.epoch}", "--build-arg", f"{BASE}={base}"),
        *("--sbom=true", "--provenance=mode=max", "--tag", f"{source.name}:{source.version}"),
        *("--output", f"type=oci,dest={target},rewrite-timestamp=true", str(ROOT)),
    ]


def main(words: list[str]) -> int:
    is_shown = "--dry-run" in words
    try:
        source = read_source()
        built = ROOT / "build" / f"{source.name}-{source.version}.oci.tar"
        base = pinned_base(os.environ.get(BASE, ""), is_shown=is_shown)
        wanted = command(source, built, base)
        print(shlex.join(wanted))
        if is_shown:
            return 0
        if not _has_buildx():
            print("docker buildx was not found, or has no engine: run the command where there is one", file=sys.stderr)
            return 3
        built.parent.mkdir(exist_ok=True)
        code = subprocess.run(wanted, check=False).returncode  # noqa: S603
        if code == 0:
            print(check_image(built, source))
    except ReleaseFailed as problem:
        print(problem, file=sys.stderr)
        return 1
    return code


def pinned_base(given: str, *, is_shown: bool = False) -> str:
    """Return the base image by its digest. Raises `ReleaseFailed` if it has none: its tag may move."""
    if is_pinned(given):
        return given
    if is_shown:
        return given or f"{tag_of_base()}@sha256:..."
    if given == RESOLVE:
        return _resolved(tag_of_base())
    raise ReleaseFailed(
        f"the base image is not named by its digest: set {BASE}={tag_of_base()}@sha256:..., or {BASE}={RESOLVE} to ask "
        "the registry for the digest of today"
    )


def tag_of_base() -> str:
    """Return the base that the Dockerfile names."""
    [tag] = re.findall(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    return tag


def _resolved(tag: str) -> str:
    asking = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", tag]
    try:
        done = subprocess.run(asking, capture_output=True, text=True, check=False, timeout=120)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReleaseFailed(f"the digest of {tag} is not known: {error}") from error
    digest = done.stdout.strip().strip('"')
    if done.returncode != 0 or not DIGEST.fullmatch(digest):
        raise ReleaseFailed(f"the digest of {tag} is not known: {done.stderr.strip() or digest}")
    return f"{tag}@{digest}"


def _has_buildx() -> bool:
    try:
        found = subprocess.run(["docker", "buildx", "inspect"], capture_output=True, check=False, timeout=60)  # noqa: S607
    except FileNotFoundError:
        return False
    return found.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
