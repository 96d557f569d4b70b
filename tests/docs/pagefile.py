"""A documentation page as a list of blocks, each with what its markers say about it.

Markers are HTML comments on lines of their own, directly above a fenced block; readers of the page do not see them:

| Marker | Meaning |
| --- | --- |
| `<!-- file: PATH -->` | the block is the content of a file; `<!-- file: PATH, appended -->` adds to it |
| `<!-- runs: background worker -->` | the block's command is a worker that keeps running |
| `<!-- worker output: until TEXT -->` | what the worker printed since it was last shown, with a line that has TEXT |
| `<!-- stops: background worker -->` | stop the worker (Ctrl-C) and expect a clean exit, before the block |
| `<!-- waits: N EVENT of PIPELINE -->` | wait until the store holds N such events, before the block |
| `<!-- waits: state STATE of PIPELINE -->` | wait until the pipeline has a run in this stored state, before the block |
| `<!-- exit code: N -->` | the exit code of the block's last command; 0 without it |
| `<!-- compared: exactly -->` | times and dates must be those that the page shows, too |
| `<!-- not run: REASON -->` | the block is shown and not executed |
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_FENCE: Final = re.compile(
    r"(?P<markers>(?:<!--[^\n]*-->\n)*)(?P<open>```(?P<language>\w*)\n)(?P<body>.*?)(?P<close>^```$)",
    re.DOTALL | re.MULTILINE,
)
_MARKER: Final = re.compile(r"<!-- (?P<name>[a-z ]+): (?P<value>.*?) -->")
NAMES: Final = {"file", "runs", "worker output", "stops", "waits", "exit code", "compared", "not run"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block."""

    language: str
    body: str
    markers: tuple[tuple[str, str], ...]  # name and value, in order
    start: int  # of the body, in the page's text

    def marker(self, name: str) -> str | None:
        return next((value for found, value in self.markers if found == name), None)

    @property
    def is_treated(self) -> bool:
        """Return whether the test does something with this block or the page says why not."""
        return self.language == "console" or any(self.marker(name) for name in ("file", "worker output", "not run"))


@dataclass(frozen=True, slots=True)
class Command:
    """A command as typed, after its `$`, and the output shown below it."""

    typed: str
    shown: str


def pages() -> list[Path]:
    """Return the pages whose blocks are executed."""
    docs = ROOT / "docs"
    return sorted([*(docs / "get-started").glob("*.md"), *(docs / "how-to").glob("*.md")])


def blocks(text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        markers = [(marker["name"], marker["value"]) for marker in _MARKER.finditer(found["markers"])]
        yield Block(language=found["language"], body=found["body"], markers=tuple(markers), start=found.start("body"))


def commands(body: str) -> list[Command]:
    """Split a console block; a `$` line that ends with a backslash continues on the next line."""
    found: list[Command] = []
    lines = body.splitlines()
    while lines:
        line = lines.pop(0)
        if not line.startswith("$ "):
            raise ValueError(f"a console block must begin with a command (`$ …`), got {line!r}")
        typed = [line.removeprefix("$ ")]
        while typed[-1].endswith("\\"):
            typed.append(lines.pop(0))
        shown: list[str] = []
        while lines and not lines[0].startswith("$ "):
            shown.append(lines.pop(0))
        found.append(Command("\n".join(typed), "\n".join(shown)))
    return found
