"""Static files of the console: read, joined and compressed once, served under their hash."""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.web.problems import ProblemType, WebProblem

TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# A page loads few files: what belongs together is served as one.
BUNDLES: Final[Mapping[str, tuple[str, ...]]] = {
    "console.css": ("console.css", "views.css"),
    "console.js": ("live.js", "times.js", "keys.js"),
}
_CACHE: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class VendoredFile:
    """VendoredFile is a file of another project, exactly as its package has it."""

    package: str
    version: str
    licence: str
    sha256: str


VENDORED: Final[Mapping[str, VendoredFile]] = {
    "htmx.min.js": VendoredFile(
        "htmx.org", "4.0.1", "0BSD", "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"
    ),
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    name: str
    content: bytes
    compressed: bytes
    content_type: str
    version: str


def _static_file(name: str, content: bytes) -> StaticFile:
    kind = TYPES[f".{name.rpartition('.')[2]}"]
    version = hashlib.sha256(content).hexdigest()[:16]
    return StaticFile(name, content, gzip.compress(content, 9, mtime=0), kind, version)


class StaticFiles:
    """Holds what the folder `static` of the wheel contains, as it is served."""

    def __init__(self) -> None:
        folder = files("worker.web.console") / "static"
        found = {each.name: each.read_bytes() for each in folder.iterdir() if "." in each.name}
        joined = {name: b"\n".join(found[part] for part in parts) for name, parts in BUNDLES.items()}
        members = {part for parts in BUNDLES.values() for part in parts}
        alone = {name: content for name, content in found.items() if name not in members}
        self._files = {name: _static_file(name, content) for name, content in {**alone, **joined}.items()}

    def parts(self, name: str) -> tuple[str, str, str]:
        """Return the parts of a file's path; it changes with the file's content."""
        return "static", self._files[name].version, name

    def compressed_bytes(self, ending: str) -> int:
        """Return how many bytes all files of a kind take on the wire."""
        return sum(len(each.compressed) for each in self._files.values() if each.name.endswith(ending))

    async def serve(self, request: Request) -> Response:
        found = self._files.get(request.path_params["name"])
        if found is None or found.version != request.path_params["version"]:
            raise WebProblem(ProblemType.NOT_FOUND, "there is no such file in this version; reload the page")
        headers = {"Cache-Control": _CACHE, "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return Response(found.compressed, headers=headers, media_type=found.content_type)
        return Response(found.content, headers=headers, media_type=found.content_type)
