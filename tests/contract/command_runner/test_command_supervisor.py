"""Command jobs, with real processes: one supervisor for the host, its death and its end; the ends of jobs."""

import asyncio
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.command_runner.commandjobs import files_of, shell
from tests.support.builders.runners import TOKEN, a_request, ended, started, until
from worker.jobs.command.exit_wait import ExitWaits
from worker.jobs.command.monitor import READY, is_abandoned
from worker.jobs.command.processes import ProcessId, identify, is_alive
from worker.jobs.command.runner import CommandRunner
from worker.jobs.command.supervisor import SPARES, supervisor_files
from worker.jobs.command.supervisor_client import SupervisorClient
from worker.jobs.runner import Failed, Refused, Running, Started, Succeeded, Unknown

PATIENCE_S = 30


def supervisor_of(runner: CommandRunner) -> ProcessId | None:
    """The process that serves this folder of jobs now."""
    lock = supervisor_files(runner.root).lock
    return identify(int(lock.read_text())) if lock.exists() else None


def children_of(process: ProcessId) -> set[int]:
    """The processes that it forked and that run."""
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return {int(pid) for pid in found if identify(int(pid))}


def kill(process: ProcessId | None) -> None:
    assert process
    os.kill(process.pid, signal.SIGKILL)


async def test_one_supervisor_starts_all_jobs_of_a_host(runner: CommandRunner, tmp_path: Path) -> None:
    config = shell("echo $INTERLOCK_TOKEN >> ran", workingDirectory=str(tmp_path))
    tokens = [f"il-{number}" for number in range(8)]

    async with asyncio.TaskGroup() as starts:
        tasks = [starts.create_task(started(replace(runner), config, token=token)) for token in tokens]
    first = supervisor_of(runner)
    for task in tasks:
        assert isinstance(await ended(runner, task.result(), config), Succeeded)

    assert first
    assert supervisor_of(runner) == first
    assert sorted((tmp_path / "ran").read_text().split()) == tokens


async def test_jobs_outlive_their_supervisor_and_the_next_start_gets_another(runner: CommandRunner, gate: Path) -> None:
    config = shell(f"echo before; read line < {gate}; echo after; exit 3")
    handle = await started(runner, config)
    first = supervisor_of(runner)

    kill(first)
    # Monitors that were ready may still serve a start.
    second, *_ = [await started(runner, shell("exit 4"), token=f"il-{number}") for number in range(SPARES + 1)]

    assert await runner.status(handle, config) == Running()
    await asyncio.to_thread(gate.write_text, "go\n")
    one, other = await ended(runner, handle, config), await ended(runner, second, config)
    assert isinstance(one, Failed)
    assert one.message == "exit code 3: after"
    assert isinstance(other, Failed)
    assert other.message == "exit code 4"
    assert supervisor_of(runner) not in {first, None}


async def test_an_order_that_a_dying_supervisor_did_not_answer_is_sent_again_and_runs_once(
    runner: CommandRunner, tmp_path: Path
) -> None:
    names = supervisor_files(runner.root)
    names.folder.mkdir(parents=True, mode=0o700)
    config = shell("echo ran >> count", workingDirectory=str(tmp_path))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(names.socket))
        listener.listen()

        def die_with_the_order() -> bytes:
            connection, _ = listener.accept()
            names.socket.unlink()
            with connection:
                connection.sendall(READY)
                return connection.recv(1)

        dying = asyncio.create_task(asyncio.to_thread(die_with_the_order))
        answer = await runner.start(a_request(config))
        assert await dying == b"{"

    assert isinstance(answer, Started)
    assert isinstance(await ended(runner, answer.handle, config), Succeeded)
    assert (tmp_path / "count").read_text() == "ran\n"


async def test_if_no_supervisor_ever_answers_the_start_is_unknown(runner: CommandRunner) -> None:
    names = supervisor_files(runner.root)
    names.folder.mkdir(parents=True, mode=0o700)

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(READY)
        await reader.readline()
        writer.close()

    async with await asyncio.start_unix_server(hang_up, names.socket):
        assert isinstance(await runner.start(a_request(shell("true"))), Unknown)


async def test_monitors_that_died_while_they_waited_for_a_job_are_replaced(runner: CommandRunner) -> None:
    await ended(runner, await started(runner, shell("true")), shell("true"))
    supervisor = supervisor_of(runner)
    assert supervisor
    waiting = children_of(supervisor)

    for pid in waiting:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: len(children_of(supervisor) - waiting) == SPARES)

    handle = await started(runner, shell("exit 6"), token="il-next")
    assert isinstance(await ended(runner, handle, shell("exit 6")), Failed)
    assert supervisor_of(runner) == supervisor


async def test_all_processes_that_wait_for_a_job_end_with_their_supervisor(runner: CommandRunner) -> None:
    await ended(runner, await started(runner, shell("true")), shell("true"))
    supervisor = supervisor_of(runner)
    assert supervisor

    def waiting() -> list[ProcessId]:
        monitors = [spare for pid in children_of(supervisor) if (spare := identify(pid))]
        programs = [ready for spare in monitors for pid in children_of(spare) if (ready := identify(pid))]
        return [*monitors, *programs]

    await until(lambda: len(waiting()) == 2 * SPARES)
    processes = waiting()
    kill(supervisor)

    await until(lambda: not any(is_alive(process) for process in processes))


async def test_a_folder_that_others_may_write_gets_no_orders(runner: CommandRunner) -> None:
    folder = supervisor_files(runner.root).folder
    folder.mkdir(parents=True)
    folder.chmod(0o777)

    answer = await runner.start(a_request(shell("true")))

    assert isinstance(answer, Refused)
    assert answer.message.startswith("the folder of command jobs cannot be used: ")
    assert "another user" in answer.message


def test_an_order_whose_worker_hung_up_is_abandoned() -> None:
    worker, monitor = socket.socketpair()
    with worker, monitor:
        assert not is_abandoned(monitor)
        worker.close()
        assert is_abandoned(monitor)


async def test_a_supervisor_that_nobody_needs_ends_and_leaves_no_address(runner: CommandRunner) -> None:
    brief = replace(runner, supervisor=SupervisorClient(idle_s=0.1))
    await ended(brief, await started(brief, shell("true")), shell("true"))
    served_by = supervisor_of(brief)

    await until(lambda: served_by is None or not is_alive(served_by))

    assert not supervisor_files(brief.root).socket.exists()
    assert isinstance(await brief.start(a_request(shell("true"), token="il-next")), Started)


async def test_the_files_of_dead_supervisors_are_swept_away_and_those_of_a_live_one_stay(runner: CommandRunner) -> None:
    await ended(runner, await started(runner, shell("true")), shell("true"))
    names = supervisor_files(runner.root)
    dead = names._replace(name="00000000")
    dead.lock.write_text("1")
    dead.socket.touch()
    for lock in (names.lock, dead.lock):
        os.utime(lock, (0, 0))

    await runner.sweep()

    assert {path.name for path in names.folder.iterdir()} == {names.lock.name, names.socket.name}


async def test_a_folder_with_a_long_path_works_too(
    runner: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    deep = replace(runner, root=tmp_path / ("d" * 120) / "jobs")

    assert isinstance(await ended(deep, await started(deep, shell("true")), shell("true")), Succeeded)


async def test_a_program_has_the_workers_directory_and_file_mode(
    runner: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o027)
    try:
        await ended(runner, await started(runner, shell("echo > here")), shell("true"))
    finally:
        os.umask(before)

    assert (tmp_path / "here").stat().st_mode & 0o777 == 0o640


async def test_signals_that_the_workers_parent_blocked_neither_hide_an_end_nor_reach_a_program(
    runner: CommandRunner,
) -> None:
    silent, looking = shell("exec >&- 2>&-; sleep 0.1"), {"command": ["grep", "SigBlk", "/proc/self/status"]}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    try:
        handles = [
            await started(runner, config, token=token) for token, config in (("il-1", silent), ("il-2", looking))
        ]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    for handle in handles:
        assert isinstance(await ended(runner, handle, silent), Succeeded)
    assert int((runner.root / "il-2" / "output.log").read_text().split()[1], 16) == 0


# --- ends of jobs -----------------------------------------------------------------------------------------------------


async def test_the_end_of_a_job_is_noticed_without_a_poll(runner: CommandRunner, gate: Path) -> None:
    config = shell(f"read line < {gate}; exit 5")
    handle = await started(runner, config)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as waiting:
        waits = [waiting.create_task(runner.wait_for_end(handle)) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert not any(wait.done() for wait in waits)
        await asyncio.to_thread(gate.write_text, "go\n")

    assert [wait.result() for wait in waits] == [True, True]
    assert isinstance(await runner.status(handle, config), Failed)
    assert await runner.wait_for_end(handle)
    assert runner.exits.count == 0


async def test_the_end_of_a_program_without_a_monitor_is_noticed_too(runner: CommandRunner, gate: Path) -> None:
    handle = await started(runner, shell(f"read line < {gate}"))
    kill(files_of(runner, TOKEN).monitor())

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as waiting:
        wait = waiting.create_task(runner.wait_for_end(handle))
        await asyncio.sleep(0.05)
        assert not wait.done()
        await asyncio.to_thread(gate.write_text, "go\n")

    assert wait.result()


async def test_a_job_of_another_host_gives_no_notice_of_its_end(runner: CommandRunner) -> None:
    handle = {**await started(runner, shell("true")), "place": "another boot/pid:[1]"}

    assert not await runner.wait_for_end(handle)


async def test_a_wait_beyond_the_limit_of_descriptors_is_refused() -> None:
    mine = identify(os.getpid())
    assert mine

    assert not await ExitWaits(count=1_000_000).wait(mine)
