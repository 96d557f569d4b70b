"""`make release` and `make release-verify`."""

import sys
from importlib import import_module

from deploy.release.artifacts import FIRST, SBOM_END, SECOND, build, digests, write
from deploy.release.source import ROOT, ReleaseFailed, is_clean, read_source
from deploy.release.verify import commit_in, compare, read_release, verify

DIST = ROOT / "dist"


def main(words: list[str]) -> int:
    try:
        match words:
            case ["build"]:
                _build()
            case ["verify"]:
                _verify()
            case _:
                print("usage: python -m deploy.release build|verify", file=sys.stderr)
                return 2
    except ReleaseFailed as problem:
        print(f"the release failed: {problem}", file=sys.stderr)
        return 1
    return 0


def _build() -> None:
    source = read_source()
    if not is_clean():
        print(f"the working copy has changes that are not released: commit {source.commit[:12]} is")
    files = build(source, FIRST)
    compare(files, build(source, SECOND))
    write(files, DIST)
    _report(read_release(DIST), source.commit)


def _verify() -> None:
    files = read_release(DIST)
    commit = commit_in(files)
    compare(files, build(read_source(commit), SECOND))
    _report(files, commit)


def _report(files: dict[str, bytes], commit: str) -> None:
    found = verify(files, read_source(commit))
    [bill] = [content.decode() for name, content in files.items() if name.endswith(SBOM_END)]
    if problem := _schema_problem(bill):
        raise ReleaseFailed(f"the bill of materials is not what its schema says: {problem}")
    for name, each in sorted(digests(files).items()):
        print(f"{each}  {name}")
    print("\n".join([*found, "two builds in different surroundings are the same, byte for byte"]))


def _schema_problem(bill: str) -> object:
    """Return what the published schema of CycloneDX refuses; None if it accepts the bill."""
    # By name, because only the environment of releases has the library.
    version = import_module("cyclonedx.schema").SchemaVersion.V1_6
    return import_module("cyclonedx.validation.json").JsonStrictValidator(version).validate_str(bill)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
