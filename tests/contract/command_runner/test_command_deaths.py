"""Command jobs, with real processes: what dying workers, dying monitors and supervisors and other hosts do to them."""

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from tests.contract.command_runner.commandjobs import files_of, shell
from tests.support.builders.runners import TOKEN, ended, started, until
from worker.core.run.state import FailureCategory
from worker.jobs.command.files import JobDirectory
from worker.jobs.command.processes import ProcessId, identify, is_alive, this_place
from worker.jobs.command.runner import CommandRunner
from worker.jobs.runner import CannotStop, Failed, Running, StopAccepted, Stopped, Succeeded

ROOT = Path(__file__).parent.parent.parent.parent
WORKER = """
import asyncio, sys
from pathlib import Path
from tests.contract.command_runner.commandjobs import LIMITS
from tests.support.builders.runners import a_request
from worker.runtime.clock import SystemClock
from worker.jobs.command.runner import CommandRunner
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


async def test_a_program_whose_monitor_was_killed_runs_on_and_can_be_stopped(runner: CommandRunner, gate: Path) -> None:
    config = shell(f"read line < {gate}")
    handle = await started(runner, config)
    monitor = files_of(runner).monitor()
    assert monitor

    os.kill(monitor.pid, signal.SIGKILL)
    await until(lambda: not is_alive(monitor))

    assert await runner.status(handle, config) == Running()
    assert await runner.stop(handle, config) == StopAccepted()
    status = await ended(runner, handle, config)
    assert isinstance(status, Failed)
    assert status.category is FailureCategory.TRANSIENT
    assert await runner.stop(handle, config) == Stopped()


async def test_a_monitor_that_died_before_the_program_began_leaves_a_job_that_can_never_begin(
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
