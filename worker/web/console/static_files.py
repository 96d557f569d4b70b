"""Static files of the console: read once, and served under their hash."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.web.problems import ProblemType, WebProblem

TYPES: Final = {".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
_CACHE: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class StaticFile:
    name: str
    content: bytes
    content_type: str

    @property
    def version(self) -> str:
        return hashlib.sha256(self.content).hexdigest()[:16]


class StaticFiles:
    """Holds every file of the folder `static`, which the wheel contains."""

    def __init__(self) -> None:
        folder = files("worker.web.console") / "static"
        found = [each for each in folder.iterdir() if "." in each.name]
        self._files = {
            each.name: StaticFile(each.name, each.read_bytes(), TYPES[f".{each.name.rpartition('.')[2]}"])
            for each in found
        }

    def parts(self, name: str) -> tuple[str, str, str]:
        """Return the parts of a file's path; it changes with the file's content."""
        return "static", self._files[name].version, name

    async def serve(self, request: Request) -> Response:
        found = self._files.get(request.path_params["name"])
        if found is None or found.version != request.path_params["version"]:
            raise WebProblem(ProblemType.NOT_FOUND, "there is no such file in this version; reload the page")
        return Response(found.content, headers={"Cache-Control": _CACHE}, media_type=found.content_type)
