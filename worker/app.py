"""The wiring: every adapter is made here, joined here, and ended here in order.

An embedded worker is one process on one SQLite file, or one of several on the same file. Everything that must have one
holder is a lease; what a session held when it was lost begins anew from the rows in the next one.
"""

import asyncio
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Final

from consumers.console import DIGEST_EVERY, ConsoleAlerts, WriteLine
from scheduler.service import ApschedulerTicker
from worker.app_session import GROUP, SessionWork, embedded_workplace
from worker.app_workplace import Workplace
from worker.clock import Clock
from worker.core.errors import ConfigError
from worker.core.pipeline import JobType
from worker.engine.worklog import log_notice
from worker.jobs.addresses import AddressPolicy
from worker.jobs.command import CommandRunner, minimal_environment
from worker.jobs.http import HttpRunner
from worker.jobs.http_client import HttpClient
from worker.jobs.runner import Runner
from worker.jobs.secrets import EnvironmentSecrets
from worker.logs import logger
from worker.membership.beaters import ThreadBeater
from worker.membership.sessions import Group, Member, Membership, session_ids
from worker.settings import Settings
from worker.store.open import SqlitePlace, locate
from worker.store.sqlite import SqliteTables
from worker.undertakings import Undertakings

SWEEP_JOBS_EVERY_S: Final = 3600.0

_log = logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a worker on one machine is run."""

    settings: Settings
    environment: Mapping[str, str]
    write_alert: WriteLine
    digest_every: timedelta | None = DIGEST_EVERY  # None: every success gets its own line


class EmbeddedWorker:
    """One worker on a SQLite file. `run` it once; `stop` ends it in order, within 25 s."""

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options, self._clock = options, clock
        self._path = sqlite_path(options.settings.store)
        self._tables = SqliteTables(self._path, clock)
        self._alerts = ConsoleAlerts(options.write_alert, clock, options.digest_every)
        self._membership = Membership(
            Group(name=GROUP, program=version("interlock"), timing=options.settings.timing),
            tables=self._tables,
            beater=ThreadBeater(lambda: SqliteTables(self._path, clock)),
            clock=clock,
            new_session_id=session_ids(socket.gethostname()),
            notify=log_notice,
        )

    def stop(self) -> None:
        """Take nothing more, finish what is in hand, give everything up, end the session."""
        _log.info("worker.stopping")
        self._membership.stop()

    async def run(self) -> None:
        """Work until stopped. Raises `ConfigError` and `RetryLater` if the store cannot be opened."""
        async with AsyncExitStack() as stack:
            await self._tables.start()
            stack.push_async_callback(self._tables.stop)
            client = await stack.enter_async_context(HttpClient(AddressPolicy.parse(self._options.settings.http_allow)))
            _log.info("worker.started", store=str(self._path), version=version("interlock"))
            await self._serve(client)
        _log.info("worker.stopped")

    async def _serve(self, client: HttpClient) -> None:
        secrets = EnvironmentSecrets(self._options.environment)
        command = CommandRunner(
            root=self._path.with_name(f"{self._path.name}-jobs").absolute(),
            clock=self._clock,
            secrets=secrets,
            environment=minimal_environment(self._options.environment, self._options.settings.job_environment),
            is_root_shared=True,  # it is beside the file that all workers share
        )
        runners: dict[JobType, Runner] = {
            JobType.COMMAND: command,
            JobType.HTTP: HttpRunner(client, self._clock, secrets),
        }
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(self._alerts.run(), name="digests"),
                tasks.create_task(self._sweep_jobs(command), name="sweep-jobs"),
            ]
            place = embedded_workplace(self._tables, self._alerts.deliver, runners, self._clock, ApschedulerTicker())
            await self._membership.serve(lambda member: self._work(member, place))
            for task in beside:
                task.cancel()

    async def _work(self, member: Member, place: Workplace) -> None:
        """One session: everything of it runs until the session ends or is asked to."""
        async with Undertakings() as tasks:
            session = SessionWork(place, member, tasks)
            await session.begin()
            await member.stopping.wait()
            await session.finish()

    async def _sweep_jobs(self, command: CommandRunner) -> None:
        while True:
            with suppress(OSError):  # what cannot be removed now is tried again
                await command.sweep()
            await self._clock.sleep(SWEEP_JOBS_EVERY_S)


def sqlite_path(url: str) -> Path:
    """The file a URL names. Raises `ConfigError` if it names another kind of store."""
    match locate(url):
        case SqlitePlace(path):
            return path
        case _:
            raise ConfigError(
                f"`interlock run` works on a SQLite file, and the store is {url!r}: its changes cannot be read by "
                "this version; use --store sqlite:///interlock.db"
            )
