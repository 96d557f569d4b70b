"""Command jobs as the tests configure them, and the files that one keeps."""

from datetime import timedelta

from tests.support.builders.runners import TOKEN
from worker.jobs.command.files import JobDirectory
from worker.jobs.command.runner import CommandLimits, CommandRunner
from worker.jobs.runner import Config

LIMITS = CommandLimits(grace=timedelta(seconds=5), log_bytes_max=64 * 1024)


def shell(script: str, **further: str | int | dict[str, str]) -> Config:
    return {"command": ["sh", "-c", script], **further}


def files_of(runner: CommandRunner, token: str = TOKEN) -> JobDirectory:
    return JobDirectory(runner.root / token)
