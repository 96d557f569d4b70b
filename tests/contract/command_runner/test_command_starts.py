"""Command jobs, with real processes: what a program gets, and that one token starts one program."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.command_runner.commandjobs import files_of, shell
from tests.support.builders.runners import TOKEN, a_request, ended, started
from worker.core.errors import Rejected
from worker.core.run.state import FailureCategory
from worker.jobs.command.runner import CommandRunner
from worker.jobs.runner import Config, Failed, Guarantee, Refused, Started, Succeeded, Unknown

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
        "TRACEPARENT",
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


@pytest.mark.parametrize("form", ["$INTERLOCK_PERIOD", "${INTERLOCK_PERIOD}"])
async def test_what_a_program_is_told_about_its_run_may_stand_in_its_command_and_environment(
    runner: CommandRunner, tmp_path: Path, form: str
) -> None:
    script = f'printf "%s|" "{form}" "$1" "$2" "$DAY" "$PASSWORD" > seen'
    config: Config = {
        "command": ["sh", "-c", script, "sh", form],
        "arguments": [f"at-{form}"],
        "environment": {"DAY": form, "PASSWORD": "${INTERLOCK_PASSWORD}"},
        "workingDirectory": str(tmp_path),
    }

    handle = await started(runner, config)
    assert isinstance(await ended(runner, handle, config), Succeeded)

    day = "2026-03-03"
    assert (tmp_path / "seen").read_text().split("|")[:4] == [day, day, f"at-{day}", day]


async def test_a_plain_command_without_a_shell_gets_its_period(runner: CommandRunner, tmp_path: Path) -> None:
    config: Config = {"command": "mkdir $INTERLOCK_PERIOD ${INTERLOCK_PAR_DAY}", "workingDirectory": str(tmp_path)}

    assert isinstance(await ended(runner, await started(runner, config), config), Succeeded)

    assert (tmp_path / "2026-03-03").is_dir()
    assert (tmp_path / "20260303").is_dir()


async def test_a_secret_is_hidden_also_beside_what_is_none(runner: CommandRunner) -> None:
    environment = {"DAY": "$INTERLOCK_PERIOD", "PASSWORD": "${INTERLOCK_PASSWORD}"}
    config = shell('echo "no: $PASSWORD on $DAY" >&2; exit 3', environment=environment)

    status = await ended(runner, await started(runner, config), config)

    assert isinstance(status, Failed)
    assert status.message == "exit code 3: no: *** on 2026-03-03"


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


async def test_a_program_that_is_not_on_the_path_is_named(runner: CommandRunner) -> None:
    answer = await runner.start(a_request({"command": ["no-such-program-anywhere", "--fast"]}))

    assert isinstance(answer, Refused)
    assert answer.category is FailureCategory.PERMANENT
    assert answer.message.endswith(": No such file or directory: no-such-program-anywhere")


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


async def test_a_worker_whose_own_folder_was_deleted_says_so_and_starts_what_needs_no_folder_of_it(
    runner: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    config = shell("true")

    refused = await runner.start(a_request(config))
    elsewhere = await runner.start(a_request(shell("true", workingDirectory=str(tmp_path))))

    assert isinstance(refused, Refused)
    assert refused.category is FailureCategory.TRANSIENT
    assert "the worker's working directory no longer exists" in refused.message
    assert isinstance(elsewhere, Started)
