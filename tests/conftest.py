"""What holds for the whole suite: the calls to AWS that it makes are held against the policies of the deployment."""

import functools
import gc
import logging
import os
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final, cast

import pytest
import pytest_timeout
import structlog
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests.schedule import SuiteScheduling, rank
from tests.support.aws import calls, task_roles
from tests.time_limit import TimeLimit
from worker.runtime import logs

# A busy machine is no fault of the code: how long an example takes to make or to try proves nothing.
# The same examples each time: a run that fails must fail again.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


def _worker_name(config: pytest.Config) -> str | None:
    """The name of this process among several; None for the one that leads them, or is alone."""
    worker = cast("dict[str, str] | None", getattr(config, "workerinput", None))
    return None if worker is None else worker["workerid"]


# Thousands of tests are collected, and none of them is garbage: to look for it takes a fifth of the time.
gc.disable()


@pytest.hookimpl(trylast=True)  # by then pytest-xdist has written the groups into the names
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _worker_name(config) is not None:
        items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SuiteScheduling:
    return SuiteScheduling(config, log)


_TIME_LIMIT: Final = TimeLimit()


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:  # noqa: ANN401 - it has no types
    end = cast("Callable[[pytest.Item, object], None]", getattr(pytest_timeout, "timeout_timer"))  # noqa: B009 - nor this
    _TIME_LIMIT.begin(float(settings.timeout), functools.partial(end, item, settings))
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    _TIME_LIMIT.cancel()
    return True


def pytest_collection_finish() -> None:
    gc.freeze()
    # Tests leave little that only the collector can free: to look for it less often saves a tenth of the time.
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    if _worker_name(config) is None:
        directory = tempfile.TemporaryDirectory(prefix="interlock-calls-")
        config.add_cleanup(directory.cleanup)
        os.environ[calls.DIRECTORY] = directory.name


@pytest.fixture(scope="session", autouse=True)
def calls_to_aws_are_recorded() -> Generator[None]:
    remove = calls.Recorder(Path(os.environ[calls.DIRECTORY])).install()
    yield
    remove()


def pytest_runtest_teardown() -> None:
    """Logs go where they went before: a test that sent them somewhere may have closed that since.

    Those of libraries too: with structlog's defaults, each exception that one logs would be shown with all local
    variables of all its frames, which takes seconds.
    """
    structlog.reset_defaults()
    for handler in logging.root.handlers[:]:
        if type(handler).__module__ == logs.__name__:
            logging.root.removeHandler(handler)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the run where the policies of deploy/terraform do not fit."""
    if _worker_name(session.config) is not None:
        return
    heard = calls.load(Path(os.environ[calls.DIRECTORY]))
    found = task_roles.problems(heard, is_whole=exitstatus == 0 and _is_whole(session.config))
    for problem in found:
        print(f"\nAWS permissions: {problem}; see deploy/terraform/roles.tf and tests/support/aws/task_roles.py")
    if found and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_whole(config: pytest.Config) -> bool:
    chosen = [config.getoption(name, default=None) for name in ("keyword", "markexpr", "deselect", "lf", "collectonly")]
    return config.args == config.getini("testpaths") and not any(chosen)
