"""Asks programs on the worker's machine: JSON in, JSON out, without a shell."""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from signal import SIGKILL
from typing import Final, cast

from worker.core.errors import RetryLater
from worker.core.model.values import Json
from worker.core.probes.trait import ProbeUnknown
from worker.jobs.messages import tidy
from worker.jobs.secrets import Filling, SecretSource
from worker.jobs.spec_fields import parse_config
from worker.probes.runner import ProbeRequest, RawResponse
from worker.probes.specs import CommandProbeConfig
from worker.runtime.json_bytes import from_json, to_json

OUTPUT_BYTES_MAX: Final = 65_536
_STDERR_BYTES_MAX: Final = 4_096
_REAPED_WITHIN_S: Final = 5.0
_HELD_S: Final = 0.5  # for an output that somebody holds although the program has ended
MARK: Final = "INTERLOCK_PROBE_REQUEST"  # in the environment of a program and of all that it starts


class CommandProbes:
    """Runs each program in a process group of its own, which ends with the request."""

    def __init__(self, secrets: SecretSource, environment: Mapping[str, str]) -> None:
        self._secrets, self._environment = secrets, environment

    def target(self, config: Mapping[str, Json]) -> str:  # noqa: ARG002 - the port requires it
        return "command"

    async def ask(self, request: ProbeRequest) -> RawResponse | ProbeUnknown:
        config = parse_config(CommandProbeConfig, request.config)
        filling = Filling(self._secrets)
        mark = token_hex(16)
        environment = {**self._environment, **await filling.texts(config.environment), MARK: mark}
        arguments = config.command.split() if isinstance(config.command, str) else config.command
        loop = asyncio.get_running_loop()
        body = await filling.values(request.body(cast("Mapping[str, Json]", config.parameters)))
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: _ProgramProtocol(limit=OUTPUT_BYTES_MAX, loop=loop),
                *arguments,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=environment,
                cwd=config.working_directory or None,
                start_new_session=True,
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError, ValueError) as problem:
            reason = tidy(f"the program cannot be run: {problem}", filling.secrets)
            return ProbeUnknown(kind="not-runnable", reason=reason)
        except OSError as problem:
            raise RetryLater(f"no process can be started on this machine: {problem}") from problem
        program = Process(transport, protocol, loop)
        sweeping = asyncio.create_task(_end_rest(protocol.exited, mark), name="probe:rest")
        try:
            output, complaints, is_cut = await _talk(program, to_json(body))
            await protocol.exited.wait()
        finally:
            # Also what it left behind, and also if the time limit ended the request.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(program.pid, SIGKILL)
            sweeping.cancel()
            await asyncio.to_thread(_end_marked, mark)
            with suppress(TimeoutError):  # so that no ended process is left behind, nor its watcher
                async with asyncio.timeout(_REAPED_WITHIN_S):
                    await protocol.exited.wait()
            transport.close()  # with its pipes: what was not read is lost
        return _read(output, transport.get_returncode() or 0, complaints, filling, is_cut=is_cut)


async def _end_rest(exited: asyncio.Event, mark: str) -> None:
    """End what a program that has ended left behind: as long as that holds the outputs, they do not end."""
    await exited.wait()
    await asyncio.sleep(_HELD_S)
    await asyncio.to_thread(_end_marked, mark)


def _end_marked(mark: str) -> None:
    """End all processes that have inherited a mark, also those that left the program's group.

    A probe is sent again and again, so what one request leaves behind would add up. Only Linux shows the mark: on other
    systems, a process that left the group stays.
    """
    if not hasattr(os, "pidfd_open"):
        return
    wanted = f"{MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or belongs to somebody else
            descriptor = os.pidfd_open(int(path.parent.name))
            try:
                if wanted in path.read_bytes():
                    signal.pidfd_send_signal(descriptor, SIGKILL)
            finally:
                os.close(descriptor)


class _ProgramProtocol(SubprocessStreamProtocol):
    """Notes the end of the process itself: `Process.wait` also waits until all of its output is read."""

    def __init__(self, *, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=limit, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


async def _talk(program: Process, body: bytes) -> tuple[bytes, bytes, bool]:
    """Send the request and read the outputs, each up to its limit. A program that writes more is ended."""
    assert program.stdin  # noqa: S101 - `PIPE` sets it
    assert program.stdout  # noqa: S101
    assert program.stderr  # noqa: S101
    complaining = asyncio.create_task(_read_first(program.stderr, _STDERR_BYTES_MAX), name="probe:stderr")
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # a program need not read what it gets
            program.stdin.write(body)
            await program.stdin.drain()
        program.stdin.close()
        output = await _read_up_to(program.stdout, OUTPUT_BYTES_MAX + 1)
        is_cut = len(output) > OUTPUT_BYTES_MAX
        if is_cut:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, SIGKILL)
        return output, await complaining, is_cut
    finally:
        complaining.cancel()


async def _read_up_to(stream: asyncio.StreamReader, bytes_max: int) -> bytes:
    """Read to the end of a stream, or up to a limit; what follows stays unread."""
    kept = bytearray()
    while len(kept) < bytes_max and (chunk := await stream.read(bytes_max - len(kept))):
        kept += chunk
    return bytes(kept)


async def _read_first(stream: asyncio.StreamReader, bytes_max: int) -> bytes:
    """Read to the end of a stream and keep its beginning, so that the program never waits for a reader."""
    kept = await _read_up_to(stream, bytes_max)
    while await stream.read(OUTPUT_BYTES_MAX):
        pass
    return kept


def _read(output: bytes, code: int, complaints: bytes, filling: Filling, *, is_cut: bool) -> RawResponse | ProbeUnknown:
    said = complaints.decode(errors="replace").strip()
    if is_cut:
        return ProbeUnknown(kind="too-long", reason=f"the program wrote more than {OUTPUT_BYTES_MAX} bytes")
    if code != 0:
        reason = f"the program ended with {code}" + (f": {said}" if said else "")
        return ProbeUnknown(kind=f"exit-{code}", reason=tidy(reason, filling.secrets))
    try:
        value = cast("Json", from_json(output))
    except ValueError:
        shown = output.decode(errors="replace").strip() or said or "nothing"
        return ProbeUnknown(kind="not-json", reason=tidy(f"the output is not JSON: {shown}", filling.secrets))
    return RawResponse(value=value, secrets=filling.secrets)
