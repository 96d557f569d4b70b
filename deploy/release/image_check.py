"""Reads an OCI archive back: both platforms, labels, bill of materials and provenance, every blob by its digest.

`python -m deploy.release.image_check ARCHIVE` needs no engine, so whoever got an image can check it the same way.
"""

import hashlib
import json
import re
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from deploy.release.source import ReleaseFailed, Source, read_source

PLATFORMS: Final = ("linux/amd64", "linux/arm64")
SBOM: Final = "https://spdx.dev/Document"
PROVENANCE: Final = "https://slsa.dev/provenance/"
INDEXES: Final = frozenset(
    {"application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"}
)
LABELS: Final = "org.opencontainers.image."
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
# What is read as JSON: a manifest, a configuration, or a statement with the bill of materials of a whole system.
DOCUMENT_BYTES_MAX: Final = 100_000_000
NESTED_MAX: Final = 4

Document: TypeAlias = Mapping[str, Any]


class ImageArchive:
    """ImageArchive is an OCI layout in a tar file.

    Raises `ReleaseFailed` for what is not there or has another digest.
    """

    def __init__(self, files: tarfile.TarFile) -> None:
        self._files = files
        self._names = {name.removeprefix("./"): name for name in files.getnames()}

    def index(self) -> Document:
        if self._json("oci-layout").get("imageLayoutVersion") != "1.0.0":
            raise ReleaseFailed("its layout is of an unknown version")
        return self._json("index.json")

    def document(self, descriptor: Document) -> Document:
        """Return a JSON document, checked by its digest."""
        digest = str(descriptor.get("digest", ""))
        text = self._read(self._place(digest), DOCUMENT_BYTES_MAX)
        if f"sha256:{hashlib.sha256(text).hexdigest()}" != digest:
            raise ReleaseFailed(f"the blob {digest} has another digest")
        return _object(text, digest)

    def check(self, descriptor: Document) -> None:
        """Read a blob of any size, and compare its digest and size."""
        digest, found, size = str(descriptor.get("digest", "")), hashlib.sha256(), 0
        stream = self._files.extractfile(self._names[self._place(digest)])
        while stream is not None and (part := stream.read(1 << 20)):
            found.update(part)
            size += len(part)
        if f"sha256:{found.hexdigest()}" != digest or size != descriptor.get("size"):
            raise ReleaseFailed(f"the blob {digest} has another digest or size")

    def _place(self, digest: str) -> str:
        if not DIGEST.fullmatch(digest):
            raise ReleaseFailed(f"{digest or 'a descriptor without a digest'} is not a digest of SHA-256")
        place = f"blobs/{digest.replace(':', '/')}"
        if place not in self._names:
            raise ReleaseFailed(f"the blob {digest} is missing")
        return place

    def _json(self, name: str) -> Document:
        return _object(self._read(name, DOCUMENT_BYTES_MAX), name)

    def _read(self, name: str, bytes_max: int) -> bytes:
        stream = self._files.extractfile(self._names[name]) if name in self._names else None
        if stream is None:
            raise ReleaseFailed(f"{name} is missing: this is no OCI archive")
        text = stream.read(bytes_max + 1)
        if len(text) > bytes_max:
            raise ReleaseFailed(f"{name} is larger than {bytes_max:,} bytes")
        return text


def check_image(place: Path, source: Source) -> str:
    """Return what was found. Raises `ReleaseFailed` with the first thing that is wrong."""
    try:
        with tarfile.open(place) as files:
            archive = ImageArchive(files)
            manifests = list(_manifests(archive, archive.index()))
            for descriptor in manifests:
                _check_blobs(archive, descriptor)
            base = _check_platforms(archive, manifests, source)
            statements = _check_statements(archive, manifests)
    except (OSError, tarfile.TarError) as error:
        raise ReleaseFailed(f"{place}: {error}") from error
    return f"{' and '.join(PLATFORMS)} of {source.version} on {base}, with {statements} statements"


def _manifests(archive: ImageArchive, index: Document, depth: int = 0) -> Iterator[Document]:
    """Yield the descriptors of all manifests; an archive of buildx has an index within its index."""
    if depth > NESTED_MAX:
        raise ReleaseFailed("its indexes are nested too deeply")
    for descriptor in cast("list[Document]", index.get("manifests", [])):
        if descriptor.get("mediaType") in INDEXES:
            yield from _manifests(archive, archive.document(descriptor), depth + 1)
        else:
            yield descriptor


def _check_blobs(archive: ImageArchive, descriptor: Document) -> None:
    manifest = archive.document(descriptor)
    layers = cast("list[Document]", manifest.get("layers", []))
    if not layers:
        raise ReleaseFailed(f"the manifest {descriptor['digest']} has no layers")
    for blob in [cast("Document", manifest.get("config", {})), *layers]:
        archive.check(blob)


def _check_platforms(archive: ImageArchive, manifests: list[Document], source: Source) -> str:
    """Check that there is an image for each platform, with the labels of the source; return their base."""
    images = {_platform(each): each for each in manifests if not _is_statement(each)}
    if sorted(images) != sorted(PLATFORMS):
        raise ReleaseFailed(f"it is for {', '.join(sorted(images)) or 'no platform'}, not for {', '.join(PLATFORMS)}")
    bases: set[str] = set()
    for platform, descriptor in images.items():
        settings = archive.document(archive.document(descriptor)["config"])
        if f"{settings.get('os')}/{settings.get('architecture')}" != platform:
            raise ReleaseFailed(f"the image for {platform} is for {settings.get('os')}/{settings.get('architecture')}")
        labels = cast("dict[str, str]", settings.get("config", {}).get("Labels") or {})
        for name, wanted in {"title": source.name, "version": source.version, "revision": source.commit}.items():
            if (found := labels.get(f"{LABELS}{name}")) != wanted:
                raise ReleaseFailed(f"the label {name} of {platform} is {found}, not {wanted}")
        bases.add(labels.get(f"{LABELS}base.name", ""))
    if len(bases) != 1 or not is_pinned(base := bases.pop()):
        raise ReleaseFailed("its base is not named by its digest: give BASE=NAME@sha256:... to the build")
    return base


def _check_statements(archive: ImageArchive, manifests: list[Document]) -> int:
    """Check that each image has its bill of materials and its provenance; return how many there are."""
    images = {str(each["digest"]): _platform(each) for each in manifests if not _is_statement(each)}
    found: set[tuple[str, str]] = set()
    for descriptor in filter(_is_statement, manifests):
        about = str(descriptor["annotations"].get("vnd.docker.reference.digest", ""))
        for layer in archive.document(descriptor)["layers"]:
            statement = archive.document(layer)
            subjects = {str(each.get("digest", {}).get("sha256", "")) for each in statement.get("subject", [])}
            if about.removeprefix("sha256:") not in subjects:
                raise ReleaseFailed(f"a statement about {about} is about another image")
            kind = str(statement.get("predicateType", ""))
            if statement.get("predicate"):
                found.add((about, SBOM if kind == SBOM else PROVENANCE if kind.startswith(PROVENANCE) else kind))
    for digest, platform in images.items():
        for kind, name in {SBOM: "bill of materials", PROVENANCE: "provenance"}.items():
            if (digest, kind) not in found:
                raise ReleaseFailed(f"the image for {platform} has no {name}")
    return len(found)


def is_pinned(base: str) -> bool:
    """Return whether a base image is named by its digest, which nobody can move."""
    name, _, digest = base.rpartition("@")
    return bool(name) and DIGEST.fullmatch(digest) is not None


def _platform(descriptor: Document) -> str:
    platform = cast("Document", descriptor.get("platform") or {})
    return f"{platform.get('os')}/{platform.get('architecture')}"


def _is_statement(descriptor: Document) -> bool:
    annotations = cast("Document", descriptor.get("annotations") or {})
    return annotations.get("vnd.docker.reference.type") == "attestation-manifest"


def _object(text: bytes, name: str) -> Document:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ReleaseFailed(f"{name} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ReleaseFailed(f"{name} is not a JSON object")
    return cast("Document", found)


def main(words: list[str]) -> int:
    try:
        print(check_image(Path(words[0]), read_source()))
    except ReleaseFailed as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
