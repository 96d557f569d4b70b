"""Runs programs on the worker's own machine, directly and never through a shell.

The host's supervisor starts the program, and a monitor follows it. The worker and the supervisor may therefore die at
any moment: the worker's successor on the same machine finds the program or its result by the token. Another machine can
see neither and reports the job as lost.
"""

import asyncio
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import cast

from worker.core.errors import Rejected, RetryLater
from worker.core.model.templates import RUN_VARIABLES
from worker.core.run.state import FailureCategory
from worker.jobs.command.exit_status import judge
from worker.jobs.command.exit_wait import ExitWaits
from worker.jobs.command.files import CommandResult, JobDirectory, discard_ended_before
from worker.jobs.command.monitor import Order
from worker.jobs.command.processes import (
    ProcessId,
    is_alive,
    send_signal,
    send_signal_to_group,
    this_place,
)
from worker.jobs.command.supervisor import discard_unserved
from worker.jobs.command.supervisor_client import OrderNotSent, SupervisorClient
from worker.jobs.messages import tidy
from worker.jobs.runner import (
    CannotStop,
    Config,
    Failed,
    Guarantee,
    Handle,
    JobStatus,
    Refused,
    RunContext,
    Running,
    StartAnswer,
    Started,
    StartRequest,
    StopAccepted,
    StopAnswer,
    Stopped,
    Succeeded,
    Traits,
    Unknown,
)
from worker.jobs.secrets import Filling, SecretSource, fill_known
from worker.jobs.spec_fields import parse_config
from worker.jobs.specs import CommandConfig
from worker.runtime.clock import Clock

# Most programs do not start without these; none of them is a secret.
_INHERITED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,128}")
_LOOK_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    start: timedelta = timedelta(seconds=20)
    grace: timedelta = timedelta(seconds=10)  # between SIGTERM and SIGKILL
    log_bytes_max: int = 1024 * 1024
    kept_for: timedelta = timedelta(days=7)  # results and logs of ended jobs


def minimal_environment(environment: Mapping[str, str], also: tuple[str, ...] = ()) -> dict[str, str]:
    """Select the part of the worker's environment that jobs get.

    That is what programs need to start, and the variables that the operator names.
    """
    return {name: environment[name] for name in (*_INHERITED, *also) if name in environment}


def context_environment(token: str, context: RunContext) -> dict[str, str]:
    """Return the environment variables that identify the run to its program."""
    return {
        "INTERLOCK_TOKEN": token,
        "INTERLOCK_PIPELINE": context.pipeline,
        "INTERLOCK_SCHEDULE": context.schedule,
        "INTERLOCK_PERIOD": str(context.period),
        "INTERLOCK_RUN_ID": context.run_id,
        "INTERLOCK_ATTEMPT": str(context.attempt),
        "INTERLOCK_PAR_DAY": context.par_day,
        "INTERLOCK_PAR_HOUR": context.par_hour,
        "INTERLOCK_CALLBACK_URL": context.callback_url,
        "TRACEPARENT": context.traceparent,
    }


def _known(texts: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    return {name: fill_known(text, values) for name, text in texts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRunner:
    """Runs programs on this machine; `root` holds the directories of its jobs, on a local disk."""

    root: Path
    clock: Clock
    secrets: SecretSource
    environment: Mapping[str, str]
    limits: CommandLimits = field(default_factory=CommandLimits)
    # Whether every worker that can receive the same token keeps its jobs under the same `root`.
    is_root_shared: bool = False
    supervisor: SupervisorClient = field(default_factory=SupervisorClient)
    exits: ExitWaits = field(default_factory=ExitWaits)

    def traits(self, config: Config) -> Traits:
        """Return EXACTLY_ONCE if all workers share one root, where a token starts once; else FOUND_AGAIN."""
        parse_config(CommandConfig, config)
        guarantee = Guarantee.EXACTLY_ONCE if self.is_root_shared else Guarantee.FOUND_AGAIN
        return Traits(guarantee=guarantee, can_stop=True, send_timeout=self.limits.start)

    async def start(self, request: StartRequest) -> StartAnswer:
        try:
            order = await self._order(request)
        except Rejected as problem:
            return Refused(FailureCategory.PERMANENT, str(problem))
        except (RetryLater, OSError) as problem:
            return Refused(FailureCategory.TRANSIENT, str(problem))
        try:
            async with asyncio.timeout(self.limits.start.total_seconds()):
                return await self._send(order, request)
        except TimeoutError:
            return Unknown(f"the monitor of {request.token} did not answer in {self.limits.start}")
        except (RetryLater, OSError) as problem:
            return Unknown(f"the monitor of {request.token} got the start, and then: {problem}")

    async def status(self, handle: Handle, config: Config) -> JobStatus:
        filling = Filling(self.secrets)
        with suppress(Rejected):
            environment = parse_config(CommandConfig, config).environment
            await filling.texts(_known(environment, dict.fromkeys(RUN_VARIABLES, "")))
        return await asyncio.to_thread(self._inspect, _Job.read(handle), filling.secrets)

    async def find(self, token: str, _config: Config) -> Handle | None:
        directory = self._directory(token)
        if not await asyncio.to_thread(directory.exists):
            return None
        return await asyncio.to_thread(_handle_of, token, directory)

    async def stop(self, handle: Handle, _config: Config) -> StopAnswer:
        job = _Job.read(handle)
        seen = await asyncio.to_thread(self._look, job)
        if seen.monitor:
            send_signal(seen.monitor, SIGTERM)
            return StopAccepted()
        if seen.program:
            await self._end_orphan(seen.program)
            return StopAccepted()
        if seen.result or job.is_of_this_place:
            return Stopped()
        return CannotStop(f"the program runs, if it does, on {job.host}; end process {job.process.pid} there")

    async def wait_for_end(self, handle: Handle) -> bool:
        """Return True soon after the program's result was written, or after the program ended without one."""
        job = _Job.read(handle)
        if not job.is_of_this_place:
            return False
        monitor = await asyncio.to_thread(self._directory(job.token).monitor)
        # The monitor ends after the program. If somebody killed it, the program may still run.
        return (monitor is None or await self.exits.wait(monitor)) and await self.exits.wait(job.process)

    async def sweep(self) -> int:
        """Remove the files of jobs that ended longer than `kept_for` ago; return their number.

        The worker calls this periodically.
        """
        before = self.clock.now() - self.limits.kept_for
        await asyncio.to_thread(discard_unserved, self.root, before.timestamp())
        return await asyncio.to_thread(discard_ended_before, self.root, before.timestamp())

    # --- start --------------------------------------------------------------------------------------------------------

    async def _order(self, request: StartRequest) -> Order:
        config = parse_config(CommandConfig, request.config)
        directory = self._directory(request.token)
        told = context_environment(request.token, request.context)
        own = await Filling(self.secrets).texts(_known(config.environment, told))
        return Order(
            directory=str(directory.path.absolute()),
            # Programs differ in whether they expand variables in arguments. Fill them in here; a shell finds the same
            # values.
            arguments=[fill_known(argument, told) for argument in _argument_list(config)],
            environment={**self.environment, **own, **told},
            working_directory=_working_directory(config),
            timeout_s=config.timeout or 0,
            grace_s=self.limits.grace.total_seconds(),
            log_bytes_max=self.limits.log_bytes_max,
        )

    async def _send(self, order: Order, request: StartRequest) -> StartAnswer:
        try:
            reply = await self.supervisor.run(self.root, order, request.may_send, self.clock)
        except OrderNotSent as problem:
            return Refused(FailureCategory.TRANSIENT, tidy(str(problem)))
        if reply.outcome == "refused":
            category = FailureCategory.PERMANENT if reply.is_permanent else FailureCategory.TRANSIENT
            return Refused(category, tidy(f"the program cannot be run on {socket.gethostname()}: {reply.problem}"))
        if reply.program:
            return Started(_handle(request.token, reply.program))
        return Started(await asyncio.to_thread(_handle_of, request.token, self._directory(request.token)))

    def _directory(self, token: str) -> JobDirectory:
        if not _TOKEN.fullmatch(token):
            raise Rejected(f"{token[:40]!r} is not the token of a command job; nothing was touched")
        return JobDirectory(self.root / token)

    # --- status and stop ----------------------------------------------------------------------------------------------

    def _inspect(self, job: "_Job", secrets: frozenset[str]) -> JobStatus:
        seen = self._look(job)
        if seen.monitor or seen.program:
            return Running()
        directory = self._directory(job.token)
        if seen.result:
            return _with_outputs(seen.result, tidy(directory.last_line(), secrets))
        if not job.is_of_this_place:
            return Failed(FailureCategory.TRANSIENT, f"host lost: the program was started on {job.host}")
        # Block sign-in before reporting: a program that the dead monitor just forked cannot begin any more.
        if directory.exists() and (directory.sign_in(None) or not directory.program()):
            return Failed(FailureCategory.TRANSIENT, "the monitor died before the program began; nothing ran")
        if self._look(job).program:
            return Running()  # it signed in just before sign-in was blocked
        return Failed(FailureCategory.TRANSIENT, "the program is gone without a result: it or its files were removed")

    def _look(self, job: "_Job") -> "_Sighting":
        directory = self._directory(job.token)
        monitor, program = directory.monitor(), directory.program() or job.process
        return _Sighting(
            monitor=monitor if monitor and is_alive(monitor) else None,
            program=program if is_alive(program) else None,
            # Read last: a monitor writes the result before it exits.
            result=directory.result(),
        )

    async def _end_orphan(self, program: ProcessId) -> None:
        """Stop a program whose monitor is dead, in the way the monitor would have done it."""
        send_signal_to_group(program, SIGTERM)
        patience_ends = self.clock.monotonic() + self.limits.grace.total_seconds()
        while is_alive(program) and self.clock.monotonic() < patience_ends:
            await self.clock.sleep(_LOOK_AGAIN_S)
        send_signal_to_group(program, SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sighting:
    """Holds which of a job's processes are alive here, and its result if there is one."""

    monitor: ProcessId | None
    program: ProcessId | None
    result: CommandResult | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """Holds a parsed handle: the token, and the process to look for if the directory is out of reach."""

    token: str
    host: str
    process: ProcessId

    @property
    def is_of_this_place(self) -> bool:
        return self.process.place == this_place()

    @classmethod
    def read(cls, handle: Handle) -> "_Job":
        match handle:
            case {"token": str(token), "host": str(host), "pid": pid, "began": str(began), "place": str(place)}:
                # Some stores return every number as a decimal.
                return cls(token=token, host=host, process=ProcessId(int(cast("int", pid)), began, place))
            case _:
                raise Rejected("this is not the handle of a command job; the run's row was changed by somebody else")


def _with_outputs(result: CommandResult, last_line: str) -> Succeeded | Failed:
    outputs = {"exitCode": result.exit_code, "ending": result.ending, "lastLine": last_line}
    return replace(judge(result, last_line), outputs=outputs)


def _handle_of(token: str, directory: JobDirectory) -> Handle:
    process = directory.program() or directory.monitor()
    if process is None:
        raise RetryLater(f"the directory of {token} cannot be read; it may just have been removed")
    return _handle(token, process)


def _handle(token: str, process: ProcessId) -> Handle:
    return {"token": token, "host": socket.gethostname(), **process._asdict()}


def _working_directory(config: CommandConfig) -> str:
    """Return the whole path, because the supervisor has another working directory than the worker."""
    if Path(config.working_directory).is_absolute():
        return config.working_directory
    try:
        return str(Path.cwd() / config.working_directory)
    except FileNotFoundError as error:
        raise RetryLater(
            "the worker's working directory no longer exists; start the worker in one that exists, or give the job an "
            "absolute `workingDirectory`"
        ) from error


def _argument_list(config: CommandConfig) -> list[str]:
    command = config.command.split() if isinstance(config.command, str) else config.command
    further = config.arguments
    return [
        *command,
        *(further if isinstance(further, list) else (f"{name}={value}" for name, value in further.items())),
    ]
