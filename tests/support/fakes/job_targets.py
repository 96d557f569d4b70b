"""What the contract suite of runners needs of a target: a place that runs jobs as a test wants them."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from enum import Enum
from pathlib import Path
from typing import Protocol, TypeAlias

from tests.support.fakes.http_target import WebServer
from worker.jobs.runner import Config, Runner
from worker.jobs.secrets import EnvironmentSecrets

NO_SECRETS = EnvironmentSecrets({})


class Plot(Enum):
    """What becomes of a job once it is started."""

    SUCCEEDS = "succeeds"
    FAILS = "fails"
    TIMES_OUT = "times out"
    RUNS_ON = "runs on until it is stopped"


class Target(Protocol):
    """Each further runner joins the suite by bringing one of these."""

    @property
    def server(self) -> WebServer | None:
        """What the runner talks to, if a test may decide how it answers."""
        ...

    @property
    def tells_timeouts(self) -> bool:
        """Whether it tells a job that took too long from one that failed otherwise."""
        ...

    def runner(self) -> Runner:
        """A runner as a new worker would have it: it remembers nothing of the others."""
        ...

    def job(self, plot: Plot) -> Config: ...

    def broken_job(self) -> Config:
        """A job that the target refuses for good."""
        ...

    def begun(self) -> int:
        """How many jobs really began."""
        ...


OpenTarget: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Target]]
