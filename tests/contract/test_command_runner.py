"""Command jobs, with real processes: what dying workers, dying supervisors and stubborn programs do to them."""

import asyncio
import json
import os
import signal
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.runners import TOKEN, a_request, ended, started, until
from worker.clock import SystemClock
from worker.core.errors import Rejected
from worker.core.outcomes import FailureCategory
from worker.jobs.command import CommandLimits, CommandRunner, minimal_environment
from worker.jobs.command_files import EXITED, STOPPED, TIMED_OUT, JobDirectory, Result
from worker.jobs.command_processes import ProcessId, identify, identify_by_ps, is_alive, this_place
from worker.jobs.command_results import judge
from worker.jobs.runner import (
    CannotStop,
    Config,
    Failed,
    Guarantee,
    Refused,
    Running,
    Started,
    Stopped,
    StopPending,
    Succeeded,
    Unknown,
)
from worker.jobs.secrets import EnvironmentSecrets

ROOT = Path(__file__).parent.parent.parent
LIMITS = CommandLimits(grace=timedelta(seconds=5), log_bytes_max=64 * 1024)


def shell(script: str, **further: str | int | dict[str, str]) -> Config:
    return {"command": ["sh", "-c", script], **further}


@pytest.fixture
def runner(tmp_path: Path) -> CommandRunner:
    return CommandRunner(
        root=tmp_path / "jobs",
        clock=SystemClock(),
        secrets=EnvironmentSecrets({"INTERLOCK_PASSWORD": "correct horse"}),
        environment=minimal_environment({"PATH": os.environ["PATH"], "AWS_SECRET_ACCESS_KEY": "x", "LANG": "C"}),
        limits=LIMITS,
    )


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe that a program waits at until a test opens it."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def files_of(runner: CommandRunner, token: str = TOKEN) -> JobDirectory:
    return JobDirectory(runner.root / token)


# --- what the program gets --------------------------------------------------------------------------------------------


async def test_a_program_knows_its_run_and_nothing_else_of_the_workers_environment(
    runner: CommandRunner, tmp_path: Path
) -> None:
    config = shell("env > seen", workingDirectory=str(tmp_path))

    handle = await started(runner, config)
    await ended(runner, handle, config)

    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines())
    assert seen["INTERLOCK_TOKEN"] == TOKEN
    assert seen["INTERLOCK_PIPELINE"] == "orders"
    assert seen["INTERLOCK_PERIOD"] == "2026-03-03"
    assert seen["INTERLOCK_PAR_DAY"] == "20260303"
    assert seen["INTERLOCK_ATTEMPT"] == "2"
    assert {name for name in seen if not name.startswith("INTERLOCK_")} <= {
        "PATH",
        "LANG",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    }


async def test_a_secret_reaches_the_program_but_neither_the_disk_nor_a_message(runner: CommandRunner) -> None:
    config = shell('echo "no: $PASSWORD" >&2; exit 3', environment={"PASSWORD": "${INTERLOCK_PASSWORD}"})

    handle = await started(runner, config)
    status = await ended(runner, handle, config)

    assert isinstance(status, Failed)
    assert status.message == "exit code 3: no: ***"
    kept = {path.name: path.read_text() for path in files_of(runner).path.iterdir()}
    assert [name for name, text in kept.items() if "correct horse" in text] == ["output.log"]
    assert "correct horse" not in json.dumps(dict(handle))


async def test_a_secret_that_is_not_set_is_said_before_anything_runs(runner: CommandRunner) -> None:
    answer = await runner.start(a_request(shell("true", environment={"KEY": "${INTERLOCK_NOBODY_SET_IT}"})))

    assert isinstance(answer, Refused)
    assert answer.category is FailureCategory.PERMANENT
    assert "INTERLOCK_NOBODY_SET_IT" in answer.message


async def test_arguments_are_passed_as_they_are_and_no_shell_looks_at_them(
    runner: CommandRunner, tmp_path: Path
) -> None:
    nasty = f"; touch {tmp_path / 'owned'} $(id) 'a b'"
    config: Config = {"command": "printf %s\\n", "arguments": [nasty, "two words"]}

    handle = await started(runner, config)
    await ended(runner, handle, config)

    assert (files_of(runner).path / "output.log").read_text().splitlines() == [nasty, "two words"]
    assert not (tmp_path / "owned").exists()


# --- once per token ---------------------------------------------------------------------------------------------------


async def test_ten_simultaneous_starts_with_one_token_run_one_program(runner: CommandRunner, tmp_path: Path) -> None:
    config = shell("echo ran >> count", workingDirectory=str(tmp_path))

    async with asyncio.TaskGroup() as senders:
        tasks = [senders.create_task(runner.start(a_request(config))) for _ in range(10)]
    answers = [task.result() for task in tasks]

    assert all(isinstance(answer, Started) for answer in answers)
    assert isinstance(answers[0], Started)
    await ended(runner, answers[0].handle, config)
    assert (tmp_path / "count").read_text() == "ran\n"


def test_exactly_once_is_claimed_only_where_all_workers_keep_their_jobs_in_one_place(runner: CommandRunner) -> None:
    shared = replace(runner, is_root_shared=True)

    assert shared.traits(shell("true")).guarantee is Guarantee.EXACTLY_ONCE
    assert runner.traits(shell("true")).guarantee is Guarantee.FOUND_AGAIN


async def test_a_program_that_cannot_be_run_is_refused_and_the_token_stays_free(
    runner: CommandRunner, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    config: Config = {"command": [str(program)]}

    missing = await runner.start(a_request(config))
    assert await runner.find(TOKEN, config) is None
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o700)
    handle = await started(runner, config)

    assert isinstance(missing, Refused)
    assert missing.category is FailureCategory.PERMANENT
    assert str(program) in missing.message
    assert isinstance(await ended(runner, handle, config), Succeeded)


@pytest.mark.parametrize("argument", ["a\0b", "x" * 200_000], ids=["a zero", "long"])
async def test_a_program_with_arguments_that_none_can_have_is_refused_for_good(
    argument: str, runner: CommandRunner
) -> None:
    answer = await runner.start(a_request({"command": ["true", argument]}))

    assert isinstance(answer, Refused)
    assert answer.category is FailureCategory.PERMANENT
    assert await runner.find(TOKEN, shell("true")) is None


async def test_a_file_that_is_no_program_is_refused_for_good(runner: CommandRunner, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("exit 0\n")
    program.chmod(0o700)

    answer = await runner.start(a_request({"command": [str(program)]}))

    assert isinstance(answer, Refused)
    assert answer.category is FailureCategory.PERMANENT


async def test_a_worker_that_may_not_send_any_more_starts_nothing(runner: CommandRunner) -> None:
    answer = await runner.start(a_request(shell("true"), may_send=lambda: False))

    assert isinstance(answer, Refused)
    assert answer.category is FailureCategory.TRANSIENT
    assert await runner.find(TOKEN, shell("true")) is None


async def test_a_token_cannot_lead_out_of_the_directory(runner: CommandRunner) -> None:
    answer = await runner.start(a_request(shell("true"), token="../elsewhere"))

    assert isinstance(answer, Refused)
    with pytest.raises(Rejected):
        await runner.find("../elsewhere", shell("true"))


async def test_a_job_whose_files_cannot_be_read_after_the_start_is_unknown(runner: CommandRunner) -> None:
    runner.root.mkdir()
    (runner.root / TOKEN).write_text("somebody put this here")

    assert isinstance(await runner.start(a_request(shell("true"))), Unknown)


# --- deaths -----------------------------------------------------------------------------------------------------------

WORKER = """
import asyncio, sys
from pathlib import Path
from tests.contract.test_command_runner import LIMITS
from tests.runners import a_request
from worker.clock import SystemClock
from worker.jobs.command import CommandRunner
from worker.jobs.secrets import EnvironmentSecrets

async def main():
    runner = CommandRunner(root=Path(sys.argv[1]), clock=SystemClock(), secrets=EnvironmentSecrets({}),
                           environment={"PATH": "/usr/bin:/bin"}, limits=LIMITS)
    await runner.start(a_request({"command": ["sh", "-c", f"read line < {sys.argv[2]}; exit 7"]}))
    print("started", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_job_is_found_again_after_its_worker_was_killed(runner: CommandRunner, gate: Path) -> None:
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, str(runner.root), str(gate), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert worker.stdout
    assert await worker.stdout.readline() == b"started\n"

    worker.kill()
    await worker.wait()
    config = shell("whatever")
    handle = await runner.find(TOKEN, config)

    assert handle
    assert await runner.status(handle, config) == Running()
    await asyncio.to_thread(gate.write_text, "go\n")
    status = await ended(runner, handle, config)
    assert isinstance(status, Failed)
    assert status.message == "exit code 7"


async def test_a_program_whose_supervisor_was_killed_runs_on_and_can_be_stopped(
    runner: CommandRunner, gate: Path
) -> None:
    config = shell(f"read line < {gate}")
    handle = await started(runner, config)
    supervisor = files_of(runner).supervisor()
    assert supervisor

    os.kill(supervisor.pid, signal.SIGKILL)
    await until(lambda: not is_alive(supervisor))

    assert await runner.status(handle, config) == Running()
    assert await runner.stop(handle, config) == StopPending()
    status = await ended(runner, handle, config)
    assert isinstance(status, Failed)
    assert status.category is FailureCategory.TRANSIENT
    assert await runner.stop(handle, config) == Stopped()


async def test_a_supervisor_that_died_before_the_program_began_leaves_a_job_that_can_never_begin(
    runner: CommandRunner,
) -> None:
    runner.root.mkdir()
    nobody = ProcessId(2**22 + 1, "1", this_place())
    directory = JobDirectory.claim(runner.root / TOKEN, nobody)
    assert directory
    handle = await runner.find(TOKEN, shell("true"))
    assert handle

    first = await runner.status(handle, shell("true"))
    second = await runner.status(handle, shell("true"))

    assert first == second
    assert isinstance(first, Failed)
    assert "nothing ran" in first.message
    assert not directory.sign_in(identify(os.getpid()))


async def test_seen_from_another_host_a_job_is_lost_and_cannot_be_stopped(
    runner: CommandRunner, tmp_path: Path
) -> None:
    config = shell("true")
    handle = {**await started(runner, config), "place": "another boot/pid:[1]", "host": "alpha"}
    elsewhere = replace(runner, root=tmp_path / "elsewhere")

    status = await elsewhere.status(handle, config)

    assert status == Failed(FailureCategory.TRANSIENT, "host lost: the program was started on alpha")
    stop = await elsewhere.stop(handle, config)
    assert isinstance(stop, CannotStop)
    assert "alpha" in stop.message


async def test_a_result_counts_wherever_it_is_read(runner: CommandRunner) -> None:
    config = shell("exit 0")
    handle = await started(runner, config)
    await ended(runner, handle, config)

    moved = {**handle, "place": "before the reboot"}

    assert isinstance(await runner.status(moved, config), Succeeded)
    assert await runner.stop(moved, config) == Stopped()


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (Result(1, EXITED), FailureCategory.TRANSIENT),
        (Result(2, EXITED), FailureCategory.TRANSIENT),
        (Result(64, EXITED), FailureCategory.PERMANENT),
        (Result(65, EXITED), FailureCategory.PERMANENT),
        (Result(75, EXITED), FailureCategory.TRANSIENT),
        (Result(78, EXITED), FailureCategory.PERMANENT),
        (Result(127, EXITED), FailureCategory.PERMANENT),
        (Result(124, EXITED), FailureCategory.TIMEOUT),
        (Result(-9, EXITED), FailureCategory.TRANSIENT),
        (Result(0, TIMED_OUT), FailureCategory.TIMEOUT),
        (Result(0, STOPPED), FailureCategory.TRANSIENT),
    ],
)
def test_an_end_has_a_category(result: Result, expected: FailureCategory) -> None:
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

    assert await stubborn.stop(handle, config) == StopPending()
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

    assert await runner.stop(handle, config) == StopPending()

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


# --- upkeep -----------------------------------------------------------------------------------------------------------


async def test_only_jobs_that_ended_long_ago_are_swept_away(runner: CommandRunner, gate: Path) -> None:
    old, fresh, running = (f"il-{name}" for name in ("old", "fresh", "running"))
    for token in (old, fresh):
        await ended(runner, await started(runner, shell("true"), token=token), shell("true"))
    handle = await started(runner, shell(f"read line < {gate}"), token=running)
    long_ago = (runner.clock.now() - timedelta(days=8)).timestamp()
    os.utime(runner.root / old / "result.json", (long_ago, long_ago))
    os.utime(runner.root / running, (long_ago, long_ago))

    assert await runner.sweep() == 1

    assert {path.name for path in runner.root.iterdir()} == {fresh, running}
    await runner.stop(handle, shell("true"))
    await ended(runner, handle, shell("true"))


async def test_a_job_that_cannot_be_swept_away_keeps_no_other(
    runner: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("il-a", "il-b", "il-c"):
        await ended(runner, await started(runner, shell("true"), token=name), shell("true"))
        long_ago = (runner.clock.now() - timedelta(days=8)).timestamp()
        os.utime(runner.root / name / "result.json", (long_ago, long_ago))
    [stubborn, *_] = [path.name for path in runner.root.iterdir()]
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.name == stubborn:
            raise PermissionError("as on a folder of somebody else")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)

    assert await runner.sweep() == 2

    assert [path.name for path in runner.root.iterdir()] == [stubborn]


def test_a_machine_without_proc_can_tell_processes_apart_too() -> None:
    mine = identify_by_ps(os.getpid())

    assert mine
    assert mine == identify_by_ps(os.getpid())
    assert mine != identify_by_ps(os.getppid())
    assert identify_by_ps(2**22 + 1) is None
