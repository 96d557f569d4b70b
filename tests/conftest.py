"""What holds for the whole suite: the calls to AWS that it makes are held against the policies of the deployment."""

import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests import awscalls

CALLS = "INTERLOCK_TESTS_CALLS"  # where the processes of one run leave what they saw; they inherit it
STRICT = "INTERLOCK_TESTS_STRICT"  # what is found fails the run; without it, it is only said
_RECORDER = awscalls.Recorder()

# A busy machine is no fault of the code: how long an example takes to make or to try proves nothing.
# The same examples each time: a run that fails must fail again.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


def _worker_name(config: pytest.Config) -> str | None:
    """The name of this process among several; None for the one that leads them, or is alone."""
    worker = cast("dict[str, str] | None", getattr(config, "workerinput", None))
    return None if worker is None else worker["workerid"]


def pytest_configure(config: pytest.Config) -> None:
    if _worker_name(config) is None:
        directory = tempfile.TemporaryDirectory(prefix="interlock-calls-")
        config.add_cleanup(directory.cleanup)
        os.environ[CALLS] = directory.name


@pytest.fixture(scope="session", autouse=True)
def calls_to_aws_are_recorded() -> Generator[None]:
    remove = _RECORDER.install()
    yield
    remove()


def pytest_runtest_teardown() -> None:
    """Logs go where they went before: a test that sent them somewhere may have closed that since."""
    structlog.reset_defaults()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    name, directory = _worker_name(session.config), Path(os.environ[CALLS])
    awscalls.save(_RECORDER.actions, directory / f"{name or 'leader'}.json")
    if name is None and exitstatus == 0:
        _judge(session, awscalls.load(directory))


def _judge(session: pytest.Session, called: set[str]) -> None:
    """Say where the policies of deploy/terraform do not fit. What nobody calls, only a whole run can tell."""
    problems = [f"called, and no task role allows it: {action}" for action in awscalls.not_allowed(called)]
    is_whole = session.config.args == session.config.getini("testpaths")
    if is_whole:
        problems += [f"allowed by a task role, and never called: {action}" for action in awscalls.never_called(called)]
    for problem in problems:
        print(f"\nAWS permissions: {problem}; see deploy/terraform/roles.tf and tests/awscalls.py")
    if problems and os.environ.get(STRICT):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
