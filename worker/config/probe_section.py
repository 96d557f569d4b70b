"""Reads the probes of a file into the core's."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import time, timedelta
from typing import Final
from urllib.parse import urlsplit

from worker.config.job_section import check_templates, read_target_config
from worker.config.problems import Problems, show
from worker.config.rules import items_of
from worker.config.scalars import read_duration
from worker.config.schema import MonitorSection, PipelineFile, ProbeSection, RuleItem, RuleSection
from worker.core.model.probes import (
    EVERY_DEFAULT,
    PROBE_VARIABLES,
    TIMEOUT_DEFAULT,
    TTL_INTERVALS,
    ActiveHours,
    PostRunMonitor,
    Probe,
    ProbeRun,
    ProbeType,
)
from worker.core.model.values import Json
from worker.core.time.durations import format_duration
from worker.probes.specs import PROBE_CONFIGS
from worker.yaml.document import Path

EVERY_MIN: Final = timedelta(seconds=1)
TIMEOUT_MAX: Final = timedelta(minutes=5)
MONITOR_MAX: Final = timedelta(days=7)
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}", re.ASCII)
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


def read_probes(file: PipelineFile, problems: Problems) -> tuple[Probe, ...]:
    """Return the probes that can be used; report the problems of the others."""
    probes: dict[str, Probe] = {}
    for index, section in enumerate(file.probes):
        at: Path = ("probes", index)
        if not _KEY.fullmatch(section.key):
            message = "is required: the name of the probe" if not section.key else f"{show(section.key)} is not a name"
            problems.error((*at, "key"), message, "use letters, digits and . _ - /, at most 128")
        elif section.key in probes:
            problems.error((*at, "key"), f"`{section.key}` is also the key of another probe", "keys must differ")
        elif not section.type:
            problems.error((*at, "type"), "is required: what is asked", f"one of {', '.join(ProbeType)}")
        else:
            probes[section.key] = _read_probe(section, at, problems)
    return tuple(probes.values())


def _read_probe(section: ProbeSection, at: Path, problems: Problems) -> Probe:
    kind = ProbeType(section.type)
    every = read_duration(section.every, (*at, "every"), problems, default=EVERY_DEFAULT, least=EVERY_MIN)
    config = read_target_config(f"{kind} probes", PROBE_CONFIGS[kind], section.config, (*at, "config"), problems)
    check_templates(section.config, (*at, "config"), problems, PROBE_VARIABLES)
    _check_password(kind, config, at, problems)
    path = section.json_path
    return Probe(
        key=section.key,
        type=kind,
        config=config,
        every=every,
        timeout=_read_timeout(section, at, problems),
        ttl=_read_ttl(section, every, at, problems),
        run=ProbeRun(section.run),
        select=path if isinstance(path, dict) else {},
        select_all=path if isinstance(path, str) else "",
        active_hours=_read_hours(section, at, problems),
    )


def _check_password(kind: ProbeType, config: Mapping[str, Json], at: Path, problems: Problems) -> None:
    """Report a password that is written out: everybody who may read pipelines would see it."""
    url = config.get("url")
    if kind is not ProbeType.SQL or not isinstance(url, str) or "$" in url:
        return
    with suppress(ValueError):  # the adapter reports what is wrong with it
        if urlsplit(url).password:
            hint = "set the whole url as a secret where workers run, and write `${INTERLOCK_WAREHOUSE_URL}`"
            problems.error((*at, "config", "url"), "holds a password", hint)


def _read_timeout(section: ProbeSection, at: Path, problems: Problems) -> timedelta:
    where = (*at, "timeout")
    timeout = read_duration(section.timeout, where, problems, default=TIMEOUT_DEFAULT, least=EVERY_MIN)
    if timeout > TIMEOUT_MAX:
        problems.error(where, f"must be at most {format_duration(TIMEOUT_MAX)}; found {section.timeout}")
    return timeout


def _read_ttl(section: ProbeSection, every: timedelta, at: Path, problems: Problems) -> timedelta:
    default = TTL_INTERVALS * every
    if not section.ttl:
        return default
    ttl = read_duration(section.ttl, (*at, "ttl"), problems, default=default)
    if ttl <= every:
        hint = "a result must be valid until the next one arrives"
        problems.error(
            (*at, "ttl"), f"must be longer than `every` ({format_duration(every)}); found {section.ttl}", hint
        )
    return ttl


def _read_hours(section: ProbeSection, at: Path, problems: Problems) -> ActiveHours | None:
    where = (*at, "activeHours")
    if not section.active_hours:
        return None
    match = _HOURS.fullmatch(section.active_hours)
    if match is None:
        problems.error(where, f"must be HH:MM-HH:MM; found {show(section.active_hours)}")
        return None
    if section.run != ProbeRun.ALWAYS:
        problems.error(where, "has an effect only with `run: always`", "remove it, or set `run: always`")
    begin_hour, begin_minute, end_hour, end_minute = map(int, match.groups())
    return ActiveHours(time(begin_hour, begin_minute), time(end_hour, end_minute))


def read_monitor(section: MonitorSection, at: Path, problems: Problems) -> PostRunMonitor | None:
    if not section.lasts:
        problems.error((*at, "for"), "is required: how long after a success", "for example 6h")
        return None
    every = read_duration(
        section.every, (*at, "every"), problems, default=timedelta(minutes=15), least=timedelta(seconds=10)
    )
    lasts = read_duration(section.lasts, (*at, "for"), problems, default=timedelta(hours=6))
    if lasts > MONITOR_MAX:
        problems.error((*at, "for"), f"must be at most {format_duration(MONITOR_MAX)}; found {section.lasts}")
    return PostRunMonitor(lasts=lasts, every=every)


def check_probes_used(file: PipelineFile, problems: Problems) -> None:
    """Report triggers on probes that are never sent without a run, and monitors without a probe."""
    runs = {section.key: section.run for section in file.probes}
    sections = enumerate(file.schedules) if file.schedules else [(None, file.schedule)]
    for index, schedule in sections:
        trigger = schedule.trigger if schedule else None
        if trigger is not None and runs.get(trigger.key, ProbeRun.ALWAYS) != ProbeRun.ALWAYS:
            at: Path = ("schedule",) if index is None else ("schedules", index)
            message = f"probe `{trigger.key}` is sent only while a run waits, so it can never create one"
            problems.error((*at, "trigger", "key"), message, "set `run: always` on the probe")
    post_run = file.post_run
    named = [key for key in _keys(post_run.rules) if key in runs] if post_run is not None else []
    if post_run is not None and post_run.monitor and not named:
        problems.error(("postRun", "monitor"), "no post-run rule names a probe", "remove it, or add such a rule")
    asked = [key for key in named if runs[key] == ProbeRun.ALWAYS]
    if post_run is not None and not post_run.monitor and len(named) > len(asked):
        key = next(key for key in named if key not in asked)
        hint = "add `postRun.monitor: {for: 6h, every: 15m}`"
        problems.warning(("postRun",), f"nothing asks probe `{key}` after the run", hint)


def _keys(items: list[RuleItem]) -> Iterator[str]:
    for item in items:
        if isinstance(item, RuleSection):
            yield item.key
        else:
            yield from _keys([*items_of(item)])
