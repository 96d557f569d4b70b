"""The archive of an image is read back: what is missing, of another build, or changed is found."""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.release.image import pinned_base, tag_of_base
from deploy.release.image_check import PLATFORMS, PROVENANCE, SBOM, check_image, is_pinned
from deploy.release.source import ReleaseFailed, Source

SOURCE = Source(commit="c" * 40, epoch=1_800_000_000, name="interlock", version="1.2.3")
BASE = f"python:3.12-slim-bookworm@sha256:{'a' * 64}"
LABELS = {"title": "interlock", "version": "1.2.3", "revision": "c" * 40, "base.name": BASE}
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


class Layout:
    """An OCI layout as buildx writes it: an index within an index, and statements beside the images."""

    def __init__(
        self,
        platforms: tuple[str, ...] = PLATFORMS,
        statements: tuple[str, ...] = (SBOM, f"{PROVENANCE}v0.2"),
        labels: Mapping[str, str] = LABELS,
        subject: str | None = None,
    ) -> None:
        self.blobs: dict[str, bytes] = {}
        self.layer = self._blob(b"files")
        listed: list[dict[str, Any]] = []
        for platform in platforms:
            image = self._image(platform, labels)
            listed.append(image)
            if statements:
                listed.append(self._statements(image["digest"], statements, subject))
        index = self._json({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed})
        self.index = {"schemaVersion": 2, "manifests": [{**index, "mediaType": INDEX}]}

    def write(self, place: Path) -> Path:
        files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(self.index).encode()}
        files |= {f"blobs/{digest.replace(':', '/')}": text for digest, text in self.blobs.items()}
        with tarfile.open(place, "w") as archive:
            for name, text in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text))
        return place

    def _image(self, platform: str, labels: Mapping[str, str]) -> dict[str, Any]:
        system, architecture = platform.split("/")
        named = {f"org.opencontainers.image.{name}": value for name, value in labels.items()}
        config = self._json({"os": system, "architecture": architecture, "config": {"Labels": named}})
        made = self._json({"schemaVersion": 2, "config": config, "layers": [self.layer]})
        return {**made, "mediaType": MANIFEST, "platform": {"os": system, "architecture": architecture}}

    def _statements(self, digest: str, kinds: tuple[str, ...], subject: str | None) -> dict[str, Any]:
        about = [{"name": "image", "digest": {"sha256": subject or digest.removeprefix("sha256:")}}]
        layers = [self._json({"predicateType": kind, "subject": about, "predicate": {"a": 1}}) for kind in kinds]
        made = self._json({"schemaVersion": 2, "config": self._json({}), "layers": layers})
        annotations = {"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": digest}
        unknown = {"os": "unknown", "architecture": "unknown"}
        return {**made, "mediaType": MANIFEST, "annotations": annotations, "platform": unknown}

    def _json(self, document: Mapping[str, Any]) -> dict[str, Any]:
        return self._blob(json.dumps(document).encode())

    def _blob(self, text: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
        self.blobs[digest] = text
        return {"digest": digest, "size": len(text)}


def test_an_image_for_both_platforms_with_labels_and_statements_is_accepted(tmp_path: Path) -> None:
    found = check_image(Layout().write(tmp_path / "image.tar"), SOURCE)

    assert found == f"linux/amd64 and linux/arm64 of 1.2.3 on {BASE}, with 4 statements"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Layout(platforms=("linux/arm64",)), "it is for linux/arm64, not for linux/amd64, linux/arm64"),
        (lambda: Layout(statements=(SBOM,)), "the image for linux/amd64 has no provenance"),
        (lambda: Layout(statements=(f"{PROVENANCE}v1",)), "the image for linux/amd64 has no bill of materials"),
        (lambda: Layout(statements=()), "has no bill of materials"),
        (lambda: Layout(subject="d" * 64), "is about another image"),
        (lambda: Layout(labels={**LABELS, "revision": "d" * 40}), f"the label revision of linux/amd64 is {'d' * 40}"),
        (lambda: Layout(labels={**LABELS, "base.name": "python:3.12"}), "its base is not named by its digest"),
    ],
)
def test_what_is_missing_or_of_another_build_is_found(tmp_path: Path, make: Callable[[], Layout], problem: str) -> None:
    with pytest.raises(ReleaseFailed, match=problem):
        check_image(make().write(tmp_path / "image.tar"), SOURCE)


def test_a_changed_or_missing_layer_is_found(tmp_path: Path) -> None:
    layout = Layout()
    layout.blobs[layout.layer["digest"]] = b"other"
    with pytest.raises(ReleaseFailed, match="has another digest or size"):
        check_image(layout.write(tmp_path / "changed.tar"), SOURCE)
    del layout.blobs[layout.layer["digest"]]
    with pytest.raises(ReleaseFailed, match="is missing"):
        check_image(layout.write(tmp_path / "missing.tar"), SOURCE)


def test_a_file_that_is_no_archive_of_an_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.tar").write_text("no archive")
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    for name in ("text.tar", "empty.tar", "absent.tar"):
        with pytest.raises(ReleaseFailed):
            check_image(tmp_path / name, SOURCE)


def test_a_release_is_built_on_a_base_with_a_digest_only() -> None:
    assert pinned_base(BASE) == BASE
    assert not is_pinned(tag_of_base())
    for moving in ("", tag_of_base(), f"{tag_of_base()}@sha256:short"):
        with pytest.raises(ReleaseFailed, match="the base image is not named by its digest"):
            pinned_base(moving)
    assert pinned_base("", is_shown=True).endswith("@sha256:...")
