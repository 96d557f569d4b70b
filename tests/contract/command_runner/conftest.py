"""A runner of command jobs, and a gate that their programs wait at."""

import os
from pathlib import Path

import pytest

from tests.contract.command_runner.commandjobs import LIMITS
from worker.jobs.command.runner import CommandRunner, minimal_environment
from worker.jobs.command.supervisor_client import SupervisorClient
from worker.jobs.secrets import EnvironmentSecrets
from worker.runtime.clock import SystemClock


@pytest.fixture
def runner(tmp_path: Path) -> CommandRunner:
    return CommandRunner(
        root=tmp_path / "jobs",
        clock=SystemClock(),
        secrets=EnvironmentSecrets({"INTERLOCK_PASSWORD": "correct horse"}),
        environment=minimal_environment({"PATH": os.environ["PATH"], "AWS_SECRET_ACCESS_KEY": "x", "LANG": "C"}),
        limits=LIMITS,
        supervisor=SupervisorClient(idle_s=2),
    )


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe that a program waits at until a test opens it."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path
