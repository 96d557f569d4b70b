"""Executes the program of one command job, in a process that was forked before the job came.

To fork a process takes longer than everything else of a start. This module uses only the standard library, because the
supervisor starts without any other package.
"""

import errno
import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn, cast

from worker.jobs.command.files import JobDirectory
from worker.jobs.command.processes import ProcessId, identify

_CHUNK_BYTES = 65_536
_FAILED = 255


class Execution(NamedTuple):
    """Says what to execute: the same as the order of the job, without what concerns its monitor."""

    directory: str
    arguments: list[str]
    environment: dict[str, str]
    working_directory: str


class NotExecuted(Exception):
    """Says why nothing was executed, and whether the same execution would fail again."""

    def __init__(self, problem: str, *, is_permanent: bool) -> None:
        super().__init__(problem)
        self.problem, self.is_permanent = problem, is_permanent


class Program:
    """Holds a child that waits for its execution, and then is the program.

    It ends if this process ends before.
    """

    def __init__(self) -> None:
        order, self._order = os.pipe()
        self._failure, failure = os.pipe()
        self.output, output = os.pipe()
        self.exit_code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._order)
            _be_program(order, failure, output)
        for descriptor in (order, failure, output):
            os.close(descriptor)

    def execute(self, execution: Execution) -> None:
        """Execute the program; return once it runs. Raises `NotExecuted`."""
        with suppress(BrokenPipeError), os.fdopen(self._order, "wb") as order:
            order.write(json.dumps(execution).encode())
        with os.fdopen(self._failure, "rb") as failure:
            said = failure.read()
        if said:
            self._wait()
            problem, is_permanent = cast("tuple[str, bool]", json.loads(said))
            raise NotExecuted(problem, is_permanent=is_permanent)

    def poll(self) -> int | None:
        """Return the exit code (negative: the signal that killed it); None while the program runs."""
        if self.exit_code is None:
            self._wait(os.WNOHANG)
        return self.exit_code

    def _wait(self, options: int = 0) -> None:
        pid, status = os.waitpid(self.pid, options)
        if pid:
            self.exit_code = os.waitstatus_to_exitcode(status)


def myself() -> ProcessId:
    identity = identify(os.getpid())
    assert identity, "a process that asks for itself is running"  # noqa: S101
    return identity


def _be_program(order: int, failure: int, output: int) -> NoReturn:
    try:
        _execute(order, output)
    except BaseException as error:  # noqa: BLE001 - nothing above this frame may run in this process
        with suppress(OSError):
            os.write(failure, json.dumps((_problem(error), _is_permanent(error))).encode())
    os._exit(_FAILED)


def warm_up() -> None:
    """Use what a start uses, so that memory shared with the parent is copied now and not then."""
    path = Path(os.devnull)
    json.loads(json.dumps(Execution(str(path), [], dict(os.environ), "/")))
    JobDirectory(path / myself().place).program()


def _execute(order: int, output: int) -> None:
    os.setpgid(0, 0)
    warm_up()
    received = b"".join(iter(lambda: os.read(order, _CHUNK_BYTES), b""))
    if not received:
        os._exit(0)  # the monitor ended without a job
    # If the monitor died in the middle, this fails.
    directory, arguments, environment, working_directory = Execution(*json.loads(received))
    # Last before the execution: only then can no crash leave a program without a record of it.
    os.chdir(working_directory)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nowhere, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and the program would inherit that
        signal.signal(number, signal.SIG_DFL)
    if not JobDirectory(Path(directory)).sign_in(myself()):
        raise PermissionError(errno.EPERM, "this job was given up before it began")
    try:
        os.execvpe(arguments[0], arguments, environment)  # noqa: S606 - there is no shell on purpose
    except OSError as error:
        # After a search along the PATH, the error names the last place searched, not the program.
        raise OSError(error.errno, error.strerror, arguments[0]) from None


def _problem(error: BaseException) -> str:
    match error:
        case OSError(strerror=str(why), filename=str(name)):
            return f"{why}: {name}"
        case OSError(strerror=str(why)):
            return why
        case _:
            return str(error) or type(error).__name__


def _is_permanent(error: BaseException) -> bool:
    """Return whether the same execution would fail again.

    That is so if the program does not exist or is not executable, or if its arguments are invalid.
    """
    return isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError | ValueError) or (
        isinstance(error, OSError) and error.errno in {errno.ENOEXEC, errno.E2BIG}
    )
