"""`interlock doctor`: check everything a worker with these settings needs, read-only."""

import os
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Final

import typer

from consumers.outbox.severities import told_pattern
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.store_access import AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.config.roles import Role
from worker.config.settings import (
    ALERTS,
    HEALTH,
    HTTP_ALLOW,
    INBOX,
    WEB,
    WEBHOOK_URL,
    Settings,
    mistyped,
    read_settings,
    renamed,
    without_effect,
)
from worker.config.store_setting import GROUP
from worker.config.versions import PipelineVersions
from worker.core.errors import WorkerError
from worker.core.model.pipeline import Pipeline
from worker.operations.doctor.group import WorkerGroup, look_at_workers, watch_workers
from worker.operations.doctor.machine import look_at_disk, look_at_program
from worker.operations.doctor.report import Diagnosis, Health, doubtful, fine, of_verdicts, wrong
from worker.store.archive_url import FileArchive
from worker.store.backends.open import opened_as_found
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.sessions import Sessions
from worker.store.url import DynamoPlace, Place, SqlitePlace, locate

if TYPE_CHECKING:
    from worker.operations.doctor.aws_calls import AwsCalls

AREA_WIDTH: Final = len("permissions")
STYLES: Final = {Health.OK: "green", Health.WARN: "yellow", Health.FAIL: "red"}


async def run_doctor(
    screen: Screen, access: StoreAccess, *, quiet: bool, as_json: bool, with_probes: bool = False
) -> int:
    """Run the checks one by one and show each result. Return exit code 1 if any check fails."""
    settings = _in_effect(read_settings(os.environ, store=access.url))
    tally: Counter[Health] = Counter()
    async with aclosing(diagnose(access, settings, with_probes=with_probes)) as diagnoses:
        async for found in diagnoses:
            tally[found.health] += 1
            if as_json:
                screen.record({"type": "diagnosis", **asdict(found)})
            elif not quiet or found.health is not Health.OK:
                _show(screen, found)
    if as_json:
        screen.record({"type": "summary", **{health.value: tally[health] for health in Health}})
    else:
        warnings = counted(tally[Health.WARN], "warning")
        screen.line(f"{tally[Health.OK]} passed, {warnings}, {tally[Health.FAIL]} failed")
    return Exit.PROBLEMS if tally[Health.FAIL] else Exit.DONE


def _in_effect(settings: Settings) -> Settings:
    """Return the settings in effect: a shadow needs less than its settings say."""
    if not settings.shadow:
        return settings
    from worker.app.shadow import shadow_settings  # noqa: PLC0415  the wiring takes long to load

    return shadow_settings(settings)


async def diagnose(access: StoreAccess, settings: Settings, *, with_probes: bool = False) -> AsyncGenerator[Diagnosis]:
    """Check the machine, the settings, the store, its AWS resources, and the workers."""
    place = locate(access.url)
    for found in (*look_at_program(), *_look_at_settings(settings, is_aws=isinstance(place, DynamoPlace))):
        yield found
    if isinstance(place, SqlitePlace):
        for found in look_at_disk(place.path):
            yield found
    try:
        verdicts = await access.admin.check()
    except WorkerError as trouble:
        yield _in_trouble("store", access.admin.place, trouble)
        if not isinstance(place, DynamoPlace):
            return  # the remaining checks would ask the same store
    else:
        for found in of_verdicts("store", verdicts):
            yield found
        if isinstance(place, SqlitePlace) and not all(verdict.is_sound for verdict in verdicts):
            return  # the remaining checks would read the same file
    async for found in _at_work(access, settings, place, with_probes=with_probes):
        yield found


async def _at_work(
    access: StoreAccess, settings: Settings, place: Place, *, with_probes: bool
) -> AsyncIterator[Diagnosis]:
    """Check what a worker uses: AWS resources, the jobs that it starts, its probes, and the other workers."""
    if isinstance(place, DynamoPlace):
        async for found in _cloud(access, settings, place):
            yield found
    async for found in _archive(access, settings, place):
        yield found
    pipelines = await _pipelines(access)
    async for found in _jobs(access, place, pipelines):
        yield found
    async for found in _probes(access, settings, pipelines, with_probes=with_probes):
        yield found
    try:
        staff = await _staff(access, settings.timing.kill_s)
    except WorkerError as trouble:
        yield _in_trouble("workers", "sessions", trouble)
        return
    for found in look_at_workers(staff, version("interlock"), settings.timing):
        yield found


def _look_at_settings(settings: Settings, *, is_aws: bool) -> Iterator[Diagnosis]:
    yield fine("settings", "roles", ", ".join(sorted(settings.roles)))
    for name, meant in mistyped(os.environ).items():
        yield doubtful(
            "settings", name, "is no setting, and only a job could use it", f"if {meant} is meant, rename it"
        )
    for old, new in renamed(os.environ).items():
        yield doubtful("settings", old, f"is the earlier name of {new}", f"rename it to {new}")
    for name, why in without_effect(settings, is_aws=is_aws):
        yield doubtful("settings", name, f"is set and has no effect: {why}", "leave it out, or set what it needs")
    for name, read in _readings(settings):
        try:
            read()
        except WorkerError as trouble:
            yield _in_trouble("settings", name, trouble)
        else:
            yield fine("settings", name, "is understood")
    yield from _look_at_targets(settings)


def _look_at_targets(settings: Settings) -> Iterator[Diagnosis]:
    """Show which alerts each target besides Slack gets, without sending anything."""
    if not settings.alerts.targets:
        return
    from worker.app.alert_targets import described_targets  # noqa: PLC0415  the wiring takes long to load

    with suppress(WorkerError):  # the readings of the settings report it
        for found in described_targets(settings.alerts):
            if found.problem:
                yield doubtful("alerts", found.lane, found.problem, "begin its address with https://")
            else:
                yield fine("alerts", found.lane, f"gets {found.severities}; `interlock alerts test` sends it a message")


def _readings(settings: Settings) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield a reader for each setting that a worker reads only on use.

    The code of a setting is loaded only if the setting is present.
    """
    if settings.http_allow:
        from worker.net.address_policy import AddressPolicy  # noqa: PLC0415

        yield HTTP_ALLOW, lambda: AddressPolicy.parse(settings.http_allow)
    if settings.telemetry.health:
        from worker.web.addresses import parse_address  # noqa: PLC0415

        yield HEALTH, lambda: parse_address(HEALTH, settings.telemetry.health)
    if settings.web.listen:
        yield WEB, lambda: _access_rules(settings)
    if settings.alerts.slack_token or settings.alerts.targets:
        from worker.app.alert_targets import routing_from  # noqa: PLC0415

        yield ALERTS, lambda: routing_from(settings.alerts)
    if settings.alerts.webhook_urls:
        from worker.app.alert_targets import check_webhook  # noqa: PLC0415

        yield WEBHOOK_URL, lambda: check_webhook(settings.alerts)
    if settings.aws.sensors_queue and Role.SENSORS in settings.roles:
        from consumers.inbox.rules_file import rules_from  # noqa: PLC0415

        yield INBOX, lambda: rules_from(settings.aws.inbox)


def _access_rules(settings: Settings) -> object:
    """Check the address and tokens of the HTTP API; only a worker reads tokens in a managed secret."""
    from worker.app.web import checked_access  # noqa: PLC0415
    from worker.jobs.secrets import MANAGED  # noqa: PLC0415
    from worker.web.addresses import parse_address  # noqa: PLC0415

    if settings.web.tokens.startswith(MANAGED):
        return parse_address(WEB, settings.web.listen)
    return checked_access(settings)


async def _cloud(access: StoreAccess, settings: Settings, place: DynamoPlace) -> AsyncIterator[Diagnosis]:
    # Loaded here: loading the AWS library takes longer than checking a file.
    from worker.operations.doctor.aws import Cloud  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        calls = _aws_calls(stack, access, place)
        async for found in Cloud(calls=calls, settings=settings, names=place.names, told=told_pattern()).look():
            yield found


async def _archive(access: StoreAccess, settings: Settings, place: Place) -> AsyncIterator[Diagnosis]:
    """Check the target of the archive, if this worker writes one."""
    target = settings.archive.target
    if target is None or Role.SCHEDULER not in settings.roles:
        return
    from worker.operations.doctor.archive import look_at_bucket, look_at_directory  # noqa: PLC0415

    if isinstance(target, FileArchive):
        yield look_at_directory(target)
        return
    async with AsyncExitStack() as stack:
        async for found in look_at_bucket(_aws_calls(stack, access, place), target):
            yield found


def _aws_calls(stack: AsyncExitStack, access: StoreAccess, place: Place) -> "AwsCalls":
    from worker.net.aws_client import PERSON, ClientSettings  # noqa: PLC0415  loaded only where AWS is asked
    from worker.operations.doctor.aws_calls import AwsCalls  # noqa: PLC0415

    is_cloud = isinstance(place, DynamoPlace)
    region, endpoint = (place.region, place.endpoint) if is_cloud else (None, None)
    return AwsCalls(stack, ClientSettings(region=region, endpoint=endpoint, agent=PERSON), access.clock)


async def _pipelines(access: StoreAccess) -> list[Pipeline]:
    """Return the pipelines of the store; none if it cannot be read, which other checks report."""
    try:
        async with opened_as_found(access.url, access.clock) as tables:
            configs = PipelineVersions(tables)
            found = [await configs.in_force_of(stored) async for stored in Pipelines(tables).list()]
    except WorkerError:
        return []
    return [version.pipeline for version in found if version is not None]


async def _jobs(access: StoreAccess, place: Place, pipelines: list[Pipeline]) -> AsyncIterator[Diagnosis]:
    """Check the jobs that the store's pipelines start. Call AWS only if there is a Glue job among them."""
    from worker.operations.doctor.glue import glue_jobs, look_at_glue  # noqa: PLC0415

    names = glue_jobs(pipelines)
    if not names:
        return
    async with AsyncExitStack() as stack:
        async for found in look_at_glue(_aws_calls(stack, access, place), names):
            yield found


async def _probes(
    access: StoreAccess, settings: Settings, pipelines: list[Pipeline], *, with_probes: bool
) -> AsyncIterator[Diagnosis]:
    """Send each probe of the store's pipelines once, if that is asked for."""
    from worker.operations.doctor.probes import look_at_probes, not_sent, probe_calls  # noqa: PLC0415

    calls = probe_calls(pipelines, access.clock.now())
    if not calls:
        return
    if not with_probes:
        yield not_sent(calls)
        return
    from worker.app.probes import open_prober  # noqa: PLC0415  the wiring takes long to load

    async with open_prober(settings, os.environ, access.clock) as prober:
        async for found in look_at_probes(prober.send, calls):
            yield found


async def _staff(access: StoreAccess, patience_s: float) -> WorkerGroup:
    async with opened_as_found(access.url, access.clock) as tables:
        return await watch_workers(Sessions(tables, GROUP).list, access.clock, patience_s)


def _in_trouble(area: str, subject: str, trouble: WorkerError) -> Diagnosis:
    what, _, remedy = str(trouble).rpartition("; ")
    return wrong(area, subject, what or remedy, remedy if what else "see that the store is there and answers")


def _show(screen: Screen, found: Diagnosis) -> None:
    """Show one result immediately, because the next check may take long."""
    remedy = f"; {found.remedy}" if found.remedy else ""
    line = f"{found.health.value:<4}  {found.area:<{AREA_WIDTH}}  {found.subject}: {found.finding}{remedy}"
    screen.line(line, STYLES[found.health])


doctor_app = typer.Typer()

DOCTOR_HELP = """Check this worker's environment (read-only).

Run it where a worker runs, with its environment and its role. SQLite: the disk, the file, its layout and its log. \
Redis: the server, what its settings promise (appendonly, appendfsync, maxmemory-policy, replicas), and rights. \
AWS: credentials, clock, tables, indexes, expiry, streams, bus, rules, queues, and each right, by a call that reads \
what is not there or writes what a condition forbids; --json says for each what was done. One message of a queue may \
be received without being kept. With --probes, each probe of the store's pipelines is sent once, with this \
environment's secrets; a command probe runs its program.

\b
Examples:
  interlock doctor
  interlock doctor --probes
  interlock doctor --quiet
  interlock doctor --json | jq 'select(.health == "fail")'

\b
Exit codes:
  0  no check failed; there may be warnings
  1  a check failed; the output says what to do
  2  the command or the settings are wrong
"""


@doctor_app.command("doctor", help=DOCTOR_HELP)
def doctor(
    context: typer.Context,
    *,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only what is not as it should be.")] = False,
    probes: Annotated[bool, typer.Option("--probes", help="Also send each probe once; nothing is stored.")] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_doctor(screen, at, quiet=quiet, as_json=as_json, with_probes=probes)

    on_store(context, store, work)
