"""Write the log and the alerts of `interlock run` without stopping the worker.

The streams may be full, slow or closed while the worker continues.
"""

import os
import syslog
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO, cast

from consumers.alerts.console import WriteLine
from consumers.alerts.run_feed import ShowLine
from consumers.outbox.severities import Severity
from worker.cli.terminal.console import OutputStream, Screen
from worker.runtime.line_writer import LineWriter, line_writer

STYLES = {Severity.ALERT: "bold red", Severity.WARNING: "yellow", Severity.SUCCESS: "green", Severity.NOTE: ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStreams:
    """RunStreams has standard output for alerts and standard error for the log.

    Each is written in the background.
    """

    out: LineWriter
    log: LineWriter

    @property
    def screen(self) -> Screen:
        """Return a screen on both streams, so that the messages at the start cannot stop the worker either."""
        return Screen(out=OutputStream(cast("TextIO", self.out)), err=OutputStream(cast("TextIO", self.log)))

    @property
    def unread(self) -> list[str]:
        """Return the names of the streams whose reader is gone."""
        return list(dict.fromkeys(stream.name for stream in (self.out, self.log) if stream.is_broken))

    def on_broken(self, act: Callable[[], None]) -> None:
        """Call `act`, in any thread, once for each stream whose reader is gone.

        Call it immediately if that has happened already.
        """
        for stream in (self.out, self.log):
            stream.on_broken = act
        if self.unread:
            act()

    def write_alert(self, screen: Screen) -> WriteLine:
        async def write(severity: Severity, line: str) -> None:
            await self.out.deliver(screen.rendered(line, STYLES[severity]))

        return write

    def show_line(self, screen: Screen) -> ShowLine:
        def show(severity: Severity, line: str) -> None:
            self.out.write(screen.rendered(line, STYLES[severity]))

        return show

    def say_last(self, text: str) -> None:
        """If the log's reader is gone, write the text to standard output, or else to syslog."""
        if not self.log.is_broken:
            return
        if not self.out.is_broken:
            self.out.write(f"{text}\n")
        else:
            syslog.openlog("interlock", syslog.LOG_PID)
            syslog.syslog(syslog.LOG_ERR, text)


@contextmanager
def run_streams(out: TextIO | None, err: TextIO | None) -> Generator[RunStreams]:
    """Yield both streams; at the end, close them, which writes what is queued within a short time."""
    written = line_writer(out, "standard output")
    # Two writers on one terminal would write in any order.
    log = written if _is_one_terminal(out, err) else line_writer(err, "standard error")
    streams = RunStreams(out=written, log=log)
    try:
        yield streams
    finally:
        streams.out.close()
        streams.log.close()


def _is_one_terminal(out: TextIO | None, err: TextIO | None) -> bool:
    if out is None or err is None:
        return False
    try:
        return out.isatty() and err.isatty() and os.path.sameopenfile(out.fileno(), err.fileno())
    except (OSError, ValueError):  # an in-memory stream, or one that was closed
        return False
