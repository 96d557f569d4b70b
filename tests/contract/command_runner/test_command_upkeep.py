"""Command jobs that ended long ago are swept away, and processes are told apart on every machine."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from tests.contract.command_runner.commandjobs import shell
from tests.support.builders.runners import ended, started
from worker.jobs.command.processes import identify_by_ps
from worker.jobs.command.runner import CommandRunner


async def test_only_jobs_that_ended_long_ago_are_swept_away(runner: CommandRunner, gate: Path) -> None:
    old, fresh, running = (f"il-{name}" for name in ("old", "fresh", "running"))
    for token in (old, fresh):
        await ended(runner, await started(runner, shell("true"), token=token), shell("true"))
    handle = await started(runner, shell(f"read line < {gate}"), token=running)
    long_ago = (runner.clock.now() - timedelta(days=8)).timestamp()
    os.utime(runner.root / old / "result.json", (long_ago, long_ago))
    os.utime(runner.root / running, (long_ago, long_ago))

    assert await runner.sweep() == 1

    assert {path.name for path in runner.root.glob("il-*")} == {fresh, running}
    await runner.stop(handle, shell("true"))
    await ended(runner, handle, shell("true"))


async def test_a_job_that_cannot_be_swept_away_keeps_no_other(
    runner: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("il-a", "il-b", "il-c"):
        await ended(runner, await started(runner, shell("true"), token=name), shell("true"))
        long_ago = (runner.clock.now() - timedelta(days=8)).timestamp()
        os.utime(runner.root / name / "result.json", (long_ago, long_ago))
    [stubborn, *_] = [path.name for path in runner.root.glob("il-*")]
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.name == stubborn:
            raise PermissionError("as on a folder of somebody else")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)

    assert await runner.sweep() == 2

    assert [path.name for path in runner.root.glob("il-*")] == [stubborn]


def test_a_machine_without_proc_can_tell_processes_apart_too() -> None:
    mine = identify_by_ps(os.getpid())

    assert mine
    assert mine == identify_by_ps(os.getpid())
    assert mine != identify_by_ps(os.getppid())
    assert identify_by_ps(2**22 + 1) is None
