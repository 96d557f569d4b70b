"""Renders and compresses pages in steps of a few milliseconds, with turns for others in between."""

import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Final

from starlette.responses import HTMLResponse, Response

from worker.web.live.slices import Slices

COMPRESSED_MIN: Final = 1_400  # bytes: less fits into one packet anyway
COMPRESSION: Final = 4
GZIP: Final = 31  # zlib's name for its largest window, with gzip's header
PARTS_PER_STEP: Final = 50  # of a page, between two looks at the clock: a row has about ten
CHARS_PER_STEP: Final = 16_384  # compressed in one step


async def rendered_text(parts: Iterator[str], slices: Slices) -> str:
    """Return all parts that a template generates as one text."""
    found: list[str] = []
    while some := list(islice(parts, PARTS_PER_STEP)):
        found += some
        await slices.rest()
    return "".join(found)


async def page_response(parts: Iterator[str], status: int, accepted: str, slices: Slices) -> Response:
    """Return a page, compressed if the browser accepts it and it is worth it."""
    headers = {"Vary": "Accept-Encoding"}
    text = await rendered_text(parts, slices)
    if len(text) <= COMPRESSED_MIN or "gzip" not in accepted:
        return HTMLResponse(text.encode(), status, headers)
    headers["Content-Encoding"] = "gzip"
    return HTMLResponse(await _compressed(text, slices), status, headers)


async def _compressed(text: str, slices: Slices) -> bytes:
    compressor, found = zlib.compressobj(COMPRESSION, zlib.DEFLATED, GZIP), bytearray()
    for start in range(0, len(text), CHARS_PER_STEP):
        found += compressor.compress(text[start : start + CHARS_PER_STEP].encode())
        await slices.rest()
    return bytes(found + compressor.flush())
