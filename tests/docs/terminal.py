"""Two terminals for a page: a shell that runs its commands, and a worker that keeps running beside it."""

import fcntl
import os
import pty
import re
import secrets
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from tests.support.worlds import fork_server

COLUMNS: Final = 120
READER: Final = "ann"  # who types: a worker prints who asked for a rerun
PATIENCE_S: Final = 100.0  # a command takes one second, and many times that on a busy machine
LOOK_AGAIN_S: Final = 0.05
Found = TypeVar("Found")
_LOG_LINE: Final = re.compile(r"\d\d:\d\d:\d\d \[[a-z]+ *\] ")
_CONTROL: Final = re.compile(r"\x1b\[(?P<number>[0-9;?]*)(?P<letter>[A-Za-z])|(?P<move>[\r\n])|(?P<text>[^\x1b\r\n]+)")


def environment(home: Path) -> dict[str, str]:
    """Return a newcomer's environment: `interlock` on the PATH, and no settings."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    shown = {"LANG": "C.UTF-8", "TZ": "UTC", "TERM": "xterm", "NO_COLOR": "1"}
    return {"PATH": path, "HOME": str(home), "LOGNAME": READER, "USER": READER, **shown}


def until(look: Callable[[], Found | None], what: str, *, every_s: float = LOOK_AGAIN_S) -> Found:
    """Wait for something that is found by looking again and again."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE_S:.0f} s in vain for {what}")
        time.sleep(every_s)
    return found


def displayed(printed: str) -> str:
    """Return what a terminal shows in the end: without colours, and without progress bars that were erased."""
    lines, row, column = [""], 0, 0
    for found in _CONTROL.finditer(printed):
        if text := found["text"]:
            lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
            column += len(text)
        elif found["move"] == "\r":
            column = 0
        elif found["move"] == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif found["letter"] == "A":
            row = max(0, row - int(found["number"] or 1))
        elif found["letter"] == "K":
            lines[row] = ""
    return "\n".join(lines[: row + 1])


class Screen:
    """What a process prints on a terminal of its own, read in the background and without colours."""

    def __init__(self) -> None:
        self._master, self.end = pty.openpty()
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        self._read: list[bytes] = []
        self._reader = threading.Thread(target=self._keep_reading, daemon=True)

    def start(self) -> None:
        """Begin to read; the process has its own copy of the terminal's end by now."""
        os.close(self.end)
        self._reader.start()

    def _keep_reading(self) -> None:
        while True:
            try:
                self._read.append(os.read(self._master, 65536))
            except OSError:  # every process that had the terminal has ended
                os.close(self._master)
                return

    def text(self) -> str:
        """Return everything printed so far."""
        return displayed(b"".join(list(self._read)).decode("utf-8", "replace"))

    def close(self) -> None:
        self._reader.join(PATIENCE_S)


class Shell:
    """The terminal in which a reader types.

    Its `interlock` is forked from a process that has loaded it: pages have a hundred commands, and to load it takes
    longer than most of them run. The worker of a page is loaded as users load it.
    """

    def __init__(self, folder: Path) -> None:
        self._screen = Screen()
        self._commands = tempfile.TemporaryDirectory(prefix="interlock-command-")
        variables, server = fork_server.command_for_shells(Path(self._commands.name))
        variables |= environment(folder)
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env={**variables, "PATH": os.pathsep.join((self._commands.name, variables["PATH"]))},
            pass_fds=[server],
            stdin=subprocess.PIPE,
            stdout=self._screen.end,
            stderr=self._screen.end,
            start_new_session=True,
        )
        self._screen.start()

    def run(self, typed: str) -> tuple[int, str]:
        """Return a command's exit code and all it printed."""
        begin, end = len(self._screen.text()), secrets.token_hex(8)
        assert self._process.stdin is not None
        # In braces, so that `cd` and variables last, and what the command would read is not our next line.
        self._process.stdin.write(f"{{\n{typed}\n}} </dev/null\nprintf '%s %d\\n' {end} $?\n".encode())
        self._process.stdin.flush()
        pattern = re.compile(rf"(.*){end} (\d+)\n", re.DOTALL)
        found = until(lambda: pattern.fullmatch(self._screen.text(), begin), f"the end of `{typed}`")
        return int(found[2]), found[1]

    def close(self) -> None:
        _end_group(self._process)
        self._screen.close()
        self._commands.cleanup()


class Worker:
    """The terminal in which a worker runs."""

    def __init__(self, typed: str, folder: Path) -> None:
        self._screen = Screen()
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {typed}"],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=self._screen.end,
            stderr=self._screen.end,
            start_new_session=True,
        )
        self._screen.start()
        self._shown = 0

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def text(self) -> str:
        return self._screen.text()

    def lines_until(self, text: str) -> str:
        """Return the lines printed since the last call, once one of them contains `text`."""

        def look() -> str | None:
            new = self.text()[self._shown :]
            complete = new[: new.rfind("\n") + 1]
            return complete if any(text in line for line in complete.splitlines()) else None

        lines = until(look, f"{text!r} in what the worker prints; it printed:\n{self.text()}")
        self._shown += len(lines)
        # A busy machine has warnings in the log that no reader sees.
        return "".join(line for line in lines.splitlines(keepends=True) if not _LOG_LINE.match(line))

    def stop(self) -> int:
        """Stop it as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE_S)

    def close(self) -> None:
        _end_group(self._process)
        self._screen.close()


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process and all that it started in its own session."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)
    if process.stdin is not None:
        process.stdin.close()
