"""Command jobs, with real processes: how programs end, stubborn ones too, and what is kept of it."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.contract.command_runner.commandjobs import LIMITS, files_of, shell
from tests.support.builders.runners import ended, started, until
from worker.core.run.state import FailureCategory
from worker.jobs.command.exit_status import judge
from worker.jobs.command.files import EXITED, STOPPED, TIMED_OUT, CommandResult
from worker.jobs.command.processes import identify, is_alive
from worker.jobs.command.runner import CommandRunner
from worker.jobs.runner import Config, Failed, Running, StopAccepted, Stopped, Succeeded


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (CommandResult(1, EXITED), FailureCategory.TRANSIENT),
        (CommandResult(2, EXITED), FailureCategory.TRANSIENT),
        (CommandResult(64, EXITED), FailureCategory.PERMANENT),
        (CommandResult(65, EXITED), FailureCategory.PERMANENT),
        (CommandResult(75, EXITED), FailureCategory.TRANSIENT),
        (CommandResult(78, EXITED), FailureCategory.PERMANENT),
        (CommandResult(127, EXITED), FailureCategory.PERMANENT),
        (CommandResult(124, EXITED), FailureCategory.TIMEOUT),
        (CommandResult(-9, EXITED), FailureCategory.TRANSIENT),
        (CommandResult(0, TIMED_OUT), FailureCategory.TIMEOUT),
        (CommandResult(0, STOPPED), FailureCategory.TRANSIENT),
    ],
)
def test_an_end_has_a_category(result: CommandResult, expected: FailureCategory) -> None:
    status = judge(result, "")

    assert isinstance(status, Failed)
    assert status.category is expected


async def test_a_program_that_takes_too_long_is_ended(runner: CommandRunner, gate: Path) -> None:
    config = shell(f"read line < {gate}", timeout=1)

    handle = await started(runner, config)
    status = await ended(runner, handle, config)

    assert isinstance(status, Failed)
    assert status.category is FailureCategory.TIMEOUT


async def test_a_program_that_does_not_listen_is_killed_with_all_its_children(
    runner: CommandRunner, tmp_path: Path
) -> None:
    stubborn = replace(runner, limits=replace(LIMITS, grace=timedelta(milliseconds=50)))
    config = shell(
        'trap "" TERM; sleep 1000 & echo $! > child; echo up > up; wait; wait', workingDirectory=str(tmp_path)
    )
    handle = await started(stubborn, config)
    await until((tmp_path / "up").exists)
    child = identify(int((tmp_path / "child").read_text()))
    assert child

    assert await stubborn.stop(handle, config) == StopAccepted()
    status = await ended(stubborn, handle, config)

    assert isinstance(status, Failed)
    assert status.message.startswith("stopped on request")
    await until(lambda: not is_alive(child))
    assert await stubborn.stop(handle, config) == Stopped()


async def test_what_a_program_leaves_behind_ends_with_it(runner: CommandRunner, tmp_path: Path) -> None:
    config = shell("sleep 1000 & echo $! > child", workingDirectory=str(tmp_path))

    handle = await started(runner, config)
    status = await ended(runner, handle, config)

    assert isinstance(status, Succeeded)
    child = int((tmp_path / "child").read_text())
    await until(lambda: identify(child) is None)


async def test_the_output_is_bounded_and_its_end_is_kept(runner: CommandRunner) -> None:
    config = shell("i=0; while [ $i -lt 4000 ]; do echo line $i of quite some length indeed; i=$((i+1)); done; exit 9")

    handle = await started(runner, config)
    status = await ended(runner, handle, config)

    assert isinstance(status, Failed)
    assert status.message == "exit code 9: line 3999 of quite some length indeed"
    kept = sum(path.stat().st_size for path in files_of(runner).path.glob("output*"))
    assert LIMITS.log_bytes_max / 2 <= kept <= LIMITS.log_bytes_max


async def test_a_result_that_cannot_be_written_yet_is_written_later(runner: CommandRunner) -> None:
    in_the_way = files_of(runner).path / "result.new"
    config = shell(f"mkdir {in_the_way}")
    handle = await started(runner, config)
    program = files_of(runner).program()
    assert program
    await until(lambda: not is_alive(program))

    assert await runner.status(handle, config) == Running()
    in_the_way.rmdir()

    assert isinstance(await ended(runner, handle, config), Succeeded)


async def test_a_job_whose_result_cannot_be_written_can_be_given_up(runner: CommandRunner) -> None:
    config = shell(f"mkdir {files_of(runner).path / 'result.new'}")
    handle = await started(runner, config)
    program = files_of(runner).program()
    assert program
    await until(lambda: not is_alive(program))

    assert await runner.stop(handle, config) == StopAccepted()

    status = await ended(runner, handle, config)
    assert isinstance(status, Failed)
    assert status.category is FailureCategory.TRANSIENT


async def test_output_that_cannot_be_kept_does_not_end_the_job(runner: CommandRunner) -> None:
    folder = files_of(runner).path
    config = shell(f"mkdir {folder / 'output.old.log'}; yes out of room | head -c 200000; echo at last; exit 9")

    status = await ended(runner, await started(runner, config), config)

    assert isinstance(status, Failed)
    assert status.message.startswith("exit code 9")
    assert (folder / "output.log").stat().st_size <= LIMITS.log_bytes_max


async def test_a_program_that_never_stops_writing_can_be_stopped(runner: CommandRunner) -> None:
    config: Config = {"command": ["yes"]}
    handle = await started(runner, config)

    await runner.stop(handle, config)

    assert isinstance(await ended(runner, handle, config), Failed)
