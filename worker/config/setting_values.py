"""Parses the texts of settings. Each parser takes the variable's name, for messages, and the text."""

import re
from datetime import timedelta
from typing import Final

from worker.config.roles import ALL_ROLES, Role
from worker.core.errors import ConfigError
from worker.core.membership.liveness import DEFAULT_TIMING, FAST_TIMING, Timing
from worker.core.model.pipeline import JobType
from worker.core.time.durations import parse_duration
from worker.jobs.state_changes import ANNOUNCED_TYPES

TIMINGS: Final = {"default": DEFAULT_TIMING, "fast": FAST_TIMING}
POLLS: Final = ("default", "eco")
METRICS: Final = ("", "emf")
FOLLOWED: Final = ("control", "joblog", "events")  # the tables whose changes workers read
# The first policy is the default.
FAILURE_POLICIES: Final = ("park-key", "skip", "block")
LOSS_POLICIES: Final = ("resync", "halt")
WEB_AUTH: Final = ("local", "token", "alb", "proxy")  # the first is the default
RATE_MAX: Final = 10_000
REPEATED_MIN: Final = timedelta(minutes=1)

_OWNED: Final = re.compile(r"([A-Za-z0-9_.-]+)=(.+)")  # an address has a colon before its first equals sign
_STREAM_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def plain_text(_: str, text: str) -> str:
    return text


def comma_list(_: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def timing(name: str, text: str) -> Timing:
    if text not in TIMINGS:
        raise ConfigError(f"{name} is {text!r}; use {' or '.join(TIMINGS)}")
    return TIMINGS[text]


def roles(name: str, text: str) -> frozenset[Role]:
    names = comma_list(name, text)
    unknown = [each for each in names if each not in set(Role)]
    if unknown:
        raise ConfigError(f"{name} names {unknown[0]!r}; a role is one of {', '.join(Role)}")
    chosen = frozenset(Role(each) for each in names) or ALL_ROLES
    if Role.SCHEDULER in chosen and Role.ENGINE not in chosen:
        raise ConfigError(
            f"{name} has scheduler without engine; a worker that creates runs must start jobs: add engine"
        )
    return chosen


def announced_types(name: str, text: str) -> frozenset[JobType]:
    names = comma_list(name, text)
    unknown = [each for each in names if each not in ANNOUNCED_TYPES]
    if unknown:
        known = ", ".join(sorted(ANNOUNCED_TYPES))
        raise ConfigError(f"{name} names {unknown[0]!r}; events announce the ends of jobs of the types {known}")
    return frozenset(JobType(each) for each in names)


def http_address(name: str, text: str) -> str:
    """Check an address without showing it, because it may contain a secret."""
    if text and not text.startswith(("http://", "https://")):
        raise ConfigError(f"{name} is no address; begin it with https://")
    return text


def owned_secrets(name: str, text: str) -> dict[str, str]:
    """Parse a secret, and those of owners as `OWNER=SECRET`, separated by spaces.

    The owner "" is everyone else. No message shows a secret.
    """
    found: dict[str, str] = {}
    for part in text.split():
        match = _OWNED.fullmatch(part)
        owner, secret = (match[1], match[2]) if match else ("", part)
        if owner in found:
            whom = f"the owner {owner}" if owner else "everyone; write those of owners as OWNER=VALUE"
            raise ConfigError(f"{name} has two values for {whom}")
        found[owner] = secret
    return found


def owned_addresses(name: str, text: str) -> dict[str, str]:
    """Parse addresses as `owned_secrets` does, each an address or the name of a managed secret."""
    found = owned_secrets(name, text)
    for owner, address in found.items():
        if not address.startswith(("http://", "https://", "secretsmanager://")):
            whom = f" for the owner {owner}" if owner else ""
            raise ConfigError(f"{name} is no address{whom}; begin it with https:// or secretsmanager://")
    return found


def switch(name: str, text: str) -> bool:
    """Parse 0 or 1 only: reading a typo as off could start jobs."""
    if text not in {"0", "1"}:
        raise ConfigError(f"{name} is {text!r}; use 1 for on, 0 or nothing for off")
    return text == "1"


def web_reads(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= 10_000:
        raise ConfigError(f"{name} must be a whole number between 1 and 10000, got {text!r}")
    return int(text)


def web_auth(name: str, text: str) -> str:
    if text not in WEB_AUTH:
        raise ConfigError(f"{name} is {text!r}; use {_or(WEB_AUTH)}")
    return text


def optional_duration(name: str, text: str) -> timedelta | None:
    if not text:
        return None
    duration = parse_duration(text)
    if duration is None or duration < REPEATED_MIN:
        raise ConfigError(f"{name} is {text!r}; use a duration of at least 1m, such as 6h or 1d, or leave it out")
    return duration


def target_rates(name: str, text: str) -> dict[JobType, float]:
    return dict(_rate(name, given) for given in comma_list(name, text))


def _rate(name: str, given: str) -> tuple[JobType, float]:
    kind, _, number = given.partition("=")
    try:
        rate = float(number)
    except ValueError:
        rate = 0.0
    if kind not in set(JobType) or not 0 < rate <= RATE_MAX:
        wanted = f"a kind of target ({', '.join(JobType)}), = and calls per second up to {RATE_MAX}"
        raise ConfigError(f"{name} has {given!r}; write {wanted}, such as glue=2")
    return JobType(kind), rate


def failure_policies(name: str, text: str) -> dict[str, str]:
    return _policies(name, text, FAILURE_POLICIES)


def loss_policies(name: str, text: str) -> dict[str, str]:
    return _policies(name, text, LOSS_POLICIES)


def _policies(name: str, text: str, known: tuple[str, ...]) -> dict[str, str]:
    """Return the policy of each table: one for all, or one for each named table; the last one wins."""
    chosen: dict[str, str] = {}
    for given in comma_list(name, text):
        table, is_named, policy = given.rpartition("=")
        if policy not in known or (is_named and table not in FOLLOWED):
            raise ConfigError(
                f"{name} has {given!r}; use {_or(known)}, or say for which of the tables {_or(FOLLOWED)}, as in "
                f"events={known[-1]}"
            )
        chosen |= dict.fromkeys([table] if is_named else FOLLOWED, policy)
    return chosen


def _or(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def is_eco(name: str, text: str) -> bool:
    if text not in POLLS:
        raise ConfigError(f"{name} is {text!r}; use {_or(POLLS)}")
    return text == "eco"


def changes_stream(name: str, text: str) -> str:
    """Return the name of a Kinesis stream; empty for the tables' own streams."""
    kind, _, stream = text.partition(":")
    if text and (kind != "kinesis" or not _STREAM_NAME.fullmatch(stream)):
        raise ConfigError(
            f"{name} is {text!r}; use kinesis:STREAM with the name of a Kinesis stream, or leave it out to read the "
            "tables' own streams"
        )
    return stream


def metrics_format(name: str, text: str) -> str:
    if text not in METRICS:
        raise ConfigError(f"{name} is {text!r}; use emf, or leave it out")
    return text
