"""What a release is made of: locked packages with digests, a bill of materials, a provenance, and labels."""

import json
import re
import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deploy.release.artifacts import digests, write
from deploy.release.image import command
from deploy.release.lockfile import read_lock
from deploy.release.provenance import commit_of, provenance, subjects
from deploy.release.sbom import bill_of_materials
from deploy.release.source import ReleaseFailed, Source
from deploy.release.verify import compare, read_release

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
RUNTIME = (ROOT / "requirements/runtime.txt").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
SOURCE = Source(commit="c" * 40, epoch=1_800_000_000, name="interlock", version="1.2.3")
LOCK = f"""\
# a comment
aiohttp==3.14.5 \\
    --hash=sha256:{"a" * 64} \\
    --hash=sha256:{"b" * 64}
    # via
    #   interlock (pyproject.toml)
    #   aiobotocore
aiobotocore==3.10.0 ; implementation_name != 'pypy' \\
    --hash=sha256:{"d" * 64}
    # via interlock (pyproject.toml)
"""


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_every_locked_package_has_its_digests(lock: Path) -> None:
    packages = read_lock(lock.read_text(encoding="utf-8"))

    assert len(packages) >= 4
    assert [package.name for package in packages if not package.hashes] == []


def test_a_lock_file_is_read_with_markers_digests_and_who_needs_what() -> None:
    first, second = read_lock(LOCK)

    assert (first.name, first.version, first.marker) == ("aiohttp", "3.14.5", "")
    assert first.hashes == ("a" * 64, "b" * 64)
    assert first.needed_by == ("interlock", "aiobotocore")
    assert (second.marker, second.purl) == ("implementation_name != 'pypy'", "pkg:pypi/aiobotocore@3.10.0")
    with pytest.raises(ValueError, match="line 1 of the lock file"):
        read_lock("aiohttp>=3")


def test_the_backend_that_builds_is_the_one_that_is_locked() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    locked = {
        f"{each.name}=={each.version}" for each in read_lock((ROOT / "requirements/build.txt").read_text("utf-8"))
    }

    assert project["build-system"]["requires"] == project["dependency-groups"]["build"]
    assert set(project["build-system"]["requires"]) <= locked


def test_the_bill_of_materials_has_every_locked_package_and_what_needs_it() -> None:
    bill = json.loads(bill_of_materials(SOURCE, read_lock(LOCK)))

    assert [each["purl"] for each in bill["components"]] == ["pkg:pypi/aiobotocore@3.10.0", "pkg:pypi/aiohttp@3.14.5"]
    needs = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert needs["pkg:pypi/interlock@1.2.3"] == ["pkg:pypi/aiobotocore@3.10.0", "pkg:pypi/aiohttp@3.14.5"]
    assert needs["pkg:pypi/aiobotocore@3.10.0"] == ["pkg:pypi/aiohttp@3.14.5"]
    assert bill["metadata"]["timestamp"] == "2027-01-15T08:00:00Z"


def test_a_bill_of_materials_depends_on_nothing_but_the_commit_and_the_lock_file() -> None:
    packages = read_lock(RUNTIME)

    once, again = bill_of_materials(SOURCE, packages), bill_of_materials(SOURCE, tuple(reversed(packages)))
    other = bill_of_materials(replace(SOURCE, commit="e" * 40), packages)

    assert once == again
    assert json.loads(once)["serialNumber"] != json.loads(other)["serialNumber"]


def test_a_provenance_names_every_file_the_lock_files_and_the_commit() -> None:
    statement = provenance(SOURCE, {"a.whl": "1" * 64, "a.tar.gz": "2" * 64}, {"requirements/build.txt": "3" * 64})

    definition = json.loads(statement)["predicate"]["buildDefinition"]
    assert subjects(statement) == {"a.whl": "1" * 64, "a.tar.gz": "2" * 64}
    assert commit_of(statement) == SOURCE.commit
    assert {"name": "requirements/build.txt", "digest": {"sha256": "3" * 64}} in definition["resolvedDependencies"]
    with pytest.raises(ValueError, match="not a provenance"):
        subjects("{}")


def test_a_file_that_was_changed_added_or_removed_is_found(tmp_path: Path) -> None:
    files = {"a.whl": b"wheel", "a.tar.gz": b"sdist"}
    write(files, tmp_path)
    assert read_release(tmp_path) == files

    (tmp_path / "a.whl").write_bytes(b"other")
    with pytest.raises(ReleaseFailed, match=r"SHA256SUMS does not agree about a\.whl"):
        read_release(tmp_path)
    write(files, tmp_path)
    (tmp_path / "b.whl").write_bytes(b"new")
    with pytest.raises(ReleaseFailed, match=r"b\.whl"):
        read_release(tmp_path)
    with pytest.raises(ReleaseFailed, match=r"the second build does not agree about a\.whl"):
        compare(files, {**files, "a.whl": b"other"})


def test_digests_are_in_the_form_that_sha256sum_reads(tmp_path: Path) -> None:
    write({"a.whl": b"wheel"}, tmp_path)

    assert (tmp_path / "SHA256SUMS").read_text() == f"{digests({'a.whl': b'wheel'})['a.whl']}  a.whl\n"


# --- the image --------------------------------------------------------------------------------------------------------


def test_the_image_is_labelled_and_installs_nothing_without_a_digest() -> None:
    labels = set(re.findall(r"org\.opencontainers\.image\.([a-z.]+)=", DOCKERFILE))
    installs = DOCKERFILE.replace("\\\n", " ").split("pip install")[1:]

    assert labels == {"title", "description", "licenses", "version", "revision", "created", "base.name"}
    assert len(installs) == 3
    assert all("--require-hashes" in words or "--no-index" in words for words in installs)


def test_the_command_for_the_image_builds_both_architectures_and_passes_what_the_labels_need() -> None:
    words = command(SOURCE, Path("image.tar"), "python:3.12@sha256:" + "a" * 64)

    given = {word.partition("=")[0] for before, word in pairwise(words) if before == "--build-arg"}
    assert "linux/amd64,linux/arm64" in words
    assert {"--sbom=true", "--provenance=mode=max"} <= set(words)
    # buildx itself knows the last one.
    assert given - {"SOURCE_DATE_EPOCH"} == set(re.findall(r"^ARG ([A-Z]+)=", DOCKERFILE, flags=re.MULTILINE))


def test_what_the_image_copies_reaches_the_builder() -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = {
        word.rstrip("/")
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, flags=re.MULTILINE)
        for word in line.split()[:-1]
    }

    assert copied - {line.removeprefix("!") for line in ignore if line.startswith("!")} == set()
    assert all((ROOT / name).exists() for name in copied)
