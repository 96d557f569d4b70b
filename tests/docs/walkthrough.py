"""Do what a page says, from its first block to its last, in an empty folder; and put what really came into the page."""

import re
import shutil
import socket
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.docs.pagefile import ROOT, Block, blocks, commands
from tests.docs.terminal import Shell, Worker, until
from tests.support.builders.command_line import interlock, records
from worker.runtime.clock import SystemClock

WORKER: Final = "background worker"
LOOK_INTO_STORE_S: Final = 0.3  # a command each time: to look more often would keep the worker from its work
# What differs from one run to the next. Spaces count as one: columns are as wide as what stands in them.
_VARYING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d"), "DATE"),
    (re.compile(r"\b\d\d:\d\d(:\d\d)?\b"), "CLOCK"),
    (re.compile(r"\bil-[0-9a-f]{40}\b"), "TOKEN"),
    (re.compile(r"\b[0-9a-f]{12,16}\b"), "ID"),
    (re.compile(r"\b(\d+h )?(\d+m )?\d+(\.\d+)?(ms|s|m|h)\b"), "DURATION"),
    (re.compile(r"\b\d+\.\d s\b"), "DURATION"),
    (re.compile(r"\b(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"), "WEEKDAY"),
    (re.compile(r"\s+"), " "),
)
_ADDRESS: Final = re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}\b")
_EVENTS: Final = re.compile(r"(?P<count>\d+) (?P<type>[A-Z_]+) of (?P<pipeline>\S+)")
_STATE: Final = re.compile(r"state (?P<state>[A-Z_]+) of (?P<pipeline>\S+)")


def comparable(output: str) -> str:
    """Return an output without times, dates, ids and the width of columns."""
    for pattern, name in _VARYING:
        output = pattern.sub(name, output)
    return output.strip()


class Ports:
    """Gives each port that a page names one that is free here: the page may be followed twice on one machine."""

    def __init__(self) -> None:
        self._used: dict[str, str] = {}  # by the port of the page

    def used(self, typed: str) -> str:
        """Return a command with the ports that are free."""
        return _ADDRESS.sub(lambda named: self._used.setdefault(named[0], str(_free_port())), typed)

    def shown(self, output: str) -> str:
        """Return an output with the ports of the page."""
        named = {used: port for port, used in self._used.items()}
        return _ADDRESS.sub(lambda used: named.get(used[0], used[0]), output)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class Walkthrough:
    """What came of a page's blocks. `fresh` is the page with what was really printed."""

    fresh: str
    problems: list[str] = field(default_factory=list[str])
    executed: int = 0
    not_run: list[str] = field(default_factory=list[str])  # the reasons


class _Steps:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shell = Shell(folder)
        self._worker: Worker | None = None
        self._ports = Ports()
        self.problems: list[str] = []

    def step(self, block: Block) -> str:
        """Execute a block, and return it as it would be shown now."""
        for name, value in block.markers:
            self._before(name, value)
        if path := block.marker("file"):
            self._write(path, block.body)
            return block.body
        if shown := block.marker("worker output"):
            return self._worker_output(block.body, shown.removeprefix("until "))
        if block.marker("runs") == WORKER:
            return self._start_worker(block)
        return self._type(block)

    def _before(self, name: str, value: str) -> None:
        if name == "stops":
            worker = self._current_worker()
            if (code := worker.stop()) != 0:
                self.problems.append(f"the worker ended with exit code {code}; it printed:\n{worker.text()}")
            worker.close()
            self._worker = None
        elif name == "waits" and (events := _EVENTS.fullmatch(value)):
            wanted = ("events", "--type", events["type"], "--pipeline", events["pipeline"])
            self._wait(wanted, lambda found: len(found) >= int(events["count"]), value)
        elif name == "waits" and (state := _STATE.fullmatch(value)):
            self._wait(
                ("status", state["pipeline"]),
                lambda found: any(record.get("state") == state["state"] for record in found),
                value,
            )
        elif name == "waits":
            raise ValueError(f"cannot wait for {value!r}")

    def _wait(self, arguments: tuple[str, ...], has_come: Callable[[list[dict[str, object]]], bool], what: str) -> None:
        """Look into the store with a command of this process: a new process for each look would take a second."""
        store = f"sqlite:///{self._folder / 'interlock.db'}"

        def look() -> bool | None:
            if self._worker is not None and self._worker.has_ended():
                raise AssertionError(f"the worker has ended; it printed:\n{self._worker.text()}")
            result = interlock(*arguments, "--json", "--store", store, clock=SystemClock())
            return True if result.exit_code == 0 and has_come(records(result.stdout)) else None

        until(look, what, every_s=LOOK_INTO_STORE_S)

    def _write(self, path: str, body: str) -> None:
        file = self._folder / path.removesuffix(", appended")
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a" if path.endswith(", appended") else "w", encoding="utf-8") as opened:
            opened.write(body)

    def _start_worker(self, block: Block) -> str:
        [command] = commands(block.body)
        assert self._worker is None, "a page has one worker at a time"
        self._worker = Worker(self._ports.used(command.typed), self._folder)
        self._wait(
            ("leases",),
            lambda found: any(record.get("stream") == "feed.control" and record.get("holder") for record in found),
            "a worker that holds the change feed",
        )
        return f"$ {command.typed}\n{self._compared(command.typed, command.shown, self._worker.lines_until(''))}"

    def _worker_output(self, shown: str, text: str) -> str:
        return self._compared("what the worker prints", shown, self._current_worker().lines_until(text))

    def _type(self, block: Block) -> str:
        fresh = ""
        typed = commands(block.body)
        for command in typed:
            expected = int(block.marker("exit code") or 0) if command is typed[-1] else 0
            code, output = self._shell.run(self._ports.used(command.typed))
            if code != expected:
                self.problems.append(f"$ {command.typed}\nexit code {code}, expected {expected}; it printed:\n{output}")
            is_exact = block.marker("compared") == "exactly"
            fresh += f"$ {command.typed}\n{self._compared(command.typed, command.shown, output, is_exact=is_exact)}"
        return fresh

    def _compared(self, typed: str, shown: str, came: str, *, is_exact: bool = False) -> str:
        """Return what is to be shown: the same as before where only times and ids differ."""
        came = self._ports.shown(came)
        is_same = shown.split() == came.split() if is_exact else comparable(shown) == comparable(came)
        if is_same:
            return shown.rstrip("\n") + "\n" if shown.strip() else ""
        self.problems.append(f"$ {typed}\nthe page shows:\n{shown}\nit printed:\n{came}")
        lines = [line.rstrip() for line in came.rstrip().splitlines()]
        return "\n".join(lines) + "\n" if lines else ""

    def _current_worker(self) -> Worker:
        assert self._worker is not None, "the page speaks of a worker that it did not start"
        return self._worker

    def close(self) -> None:
        """End the worker and the shell, each of them even if the end of the other fails."""
        with closing(self._shell):
            if self._worker is not None:
                self._worker.close()


@contextmanager
def _steps(folder: Path) -> Generator[_Steps]:
    steps = _Steps(folder)
    try:
        yield steps
    finally:
        steps.close()


def walk(text: str, folder: Path) -> Walkthrough:
    """Execute a page's blocks in order; `folder` is empty but for the examples that pages refer to."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    walked = Walkthrough(fresh="")
    copied = 0
    with _steps(folder) as steps:
        for block in blocks(text):
            if reason := block.marker("not run"):
                walked.not_run.append(reason)
                continue
            fresh = steps.step(block)
            walked.executed += 1
            walked.fresh += text[copied : block.start] + fresh
            copied = block.start + len(block.body)
        walked.problems = steps.problems
    walked.fresh += text[copied:]
    return walked
