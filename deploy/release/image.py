"""`make image`: builds the image for both architectures, with labels, bill of materials and provenance.

It needs Docker with buildx. With --dry-run it shows the command; without an engine it shows it too, and exits with 3.
"""

import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from deploy.release.source import ROOT, ReleaseFailed, Source, read_source

PLATFORMS = ("linux/amd64", "linux/arm64")


def label_arguments(source: Source) -> list[str]:
    """Return the arguments of a build that the labels of the image are made from."""
    created = datetime.fromtimestamp(source.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    arguments = {"VERSION": source.version, "REVISION": source.commit, "CREATED": created}
    return [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]


def command(source: Source, target: Path) -> list[str]:
    """Return the command that builds an archive of the image, which `skopeo` or `docker buildx imagetools` can push."""
    return [
        *("docker", "buildx", "build", "--platform", ",".join(PLATFORMS)),
        *label_arguments(source),
        *("--build-arg", f"SOURCE_DATE_EPOCH={source.epoch}"),
        *("--sbom=true", "--provenance=mode=max", "--tag", f"{source.name}:{source.version}"),
        *("--output", f"type=oci,dest={target},rewrite-timestamp=true", str(ROOT)),
    ]


def main(words: list[str]) -> int:
    try:
        source = read_source()
    except ReleaseFailed as problem:
        print(problem, file=sys.stderr)
        return 1
    built = ROOT / "build" / f"{source.name}-{source.version}.oci.tar"
    wanted = command(source, built)
    print(shlex.join(wanted))
    if "--dry-run" in words:
        return 0
    if not _has_buildx():
        print("docker buildx was not found, or has no engine: run the command where there is one", file=sys.stderr)
        return 3
    built.parent.mkdir(exist_ok=True)
    return subprocess.run(wanted, check=False).returncode  # noqa: S603


def _has_buildx() -> bool:
    try:
        found = subprocess.run(["docker", "buildx", "inspect"], capture_output=True, check=False, timeout=60)  # noqa: S607
    except FileNotFoundError:
        return False
    return found.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
