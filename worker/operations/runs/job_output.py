"""Finds the output of a run's job: on this machine, otherwise where its target keeps it."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from worker.config.versions import PipelineVersions
from worker.core.model.pipeline import JobType
from worker.core.model.templates import RUN_VARIABLES
from worker.core.model.values import Json
from worker.core.run.state import Run, job_id, job_url, start_token
from worker.jobs.messages import hide_secrets
from worker.jobs.secrets import secrets_named
from worker.runtime.logs import redacted_text
from worker.store.table import Tables
from worker.store.url import SqlitePlace, locate

TAIL_BYTES: Final = 262_144
LINE_CHARS_MAX: Final = 4_000
OUTPUT: Final = "output.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAttempt:
    """Names the job of one attempt. `is_active`: it may still write."""

    number: int
    token: str
    job_type: str
    job: str
    url: str
    is_active: bool
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class OutputPart:
    """Holds lines that are safe to show, and the position after them. `is_cut`: some are left out."""

    lines: list[str]
    end: int
    is_cut: bool


def attempt_of(run: Run, number: int | None) -> JobAttempt | None:
    """Return an attempt, or the current one; None if the run does not know it."""
    if number is None or number == run.attempt:
        return JobAttempt(
            number=run.attempt,
            token=run.token,
            job_type=run.job_type,
            job=job_id(run.job),
            url=job_url(run.job),
            is_active=not run.is_ended,
            started_at=run.started_at,
        )
    earlier = next((each for each in run.attempts if each.number == number), None)
    if earlier is None:
        return None
    return JobAttempt(
        number=number,
        token=start_token(run.run_id, number),
        job_type=earlier.job_type,
        job=earlier.job,
        url=earlier.url,
        is_active=False,
        started_at=earlier.started_at,
    )


@dataclass(frozen=True, slots=True)
class KnownSecrets:
    """Holds the secrets that a job uses. `unreadable` names those that this process cannot read, nor hide."""

    values: list[str]
    unreadable: list[str]


def secrets_of(config: Mapping[str, Json], environment: Mapping[str, str], job_type: str) -> KnownSecrets:
    """Return the values of the secrets that a job's configuration names, as far as they can be read here."""
    found = {_variable(name) for text in _texts(config) for name in secrets_named(text)}
    # A program gets data about its run under names like those of secrets. To other jobs they are secrets like any.
    named = sorted(found.difference(RUN_VARIABLES) if is_program(job_type) else found)
    return KnownSecrets(
        [environment[name] for name in named if name in environment],
        [name for name in named if name not in environment],
    )


def is_program(job_type: str) -> bool:
    """Return whether a job is a command. Earlier versions did not store the type of a job."""
    return job_type in {JobType.COMMAND, ""}


def read_output(path: Path, begin: int | None, secrets: Sequence[str], *, is_active: bool) -> OutputPart | None:
    """Return the output from a position on, or its end; None if the job's folder is not here.

    The file is made with the first line, so a folder without one is of a job that has printed nothing.
    At most `TAIL_BYTES` are read. Secrets and control characters are removed. While the job may still write, a line
    without an end is left for the next read, because it may end in half of a secret.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - TAIL_BYTES) if begin is None else min(begin, size)
            start = max(start, size - TAIL_BYTES)
            file.seek(start)
            content = file.read(TAIL_BYTES)
    except FileNotFoundError:
        return OutputPart([], begin or 0, is_cut=False) if path.parent.is_dir() else None
    except OSError:
        return None
    is_cut = start > (begin or 0)
    if is_active:
        unfinished = content.rpartition(b"\n")[2]
        content, size = content[: len(content) - len(unfinished)], size - len(unfinished)
    if is_cut:
        content = content.partition(b"\n")[2]  # the first line may lack its beginning, and with it the secret's
    text = content.decode(errors="replace")
    return OutputPart([safe_line(line, secrets) for line in text.splitlines()], size, is_cut)


def job_folder(url: str) -> Path:
    """Return where a worker with this store on this machine keeps the files of command jobs."""
    place = locate(url)
    root = place.path.with_name(f"{place.path.name}-jobs") if isinstance(place, SqlitePlace) else Path("interlock-jobs")
    return root.absolute()


async def job_config(tables: Tables, run: Run) -> dict[str, Json]:
    """Return the configuration of the run's job; empty if it is not known."""
    version = await PipelineVersions(tables).find(run.key.pipeline, run.config_hash)
    job = None if version is None else version.pipeline.job
    return {} if job is None else dict(job.config)


def location_of(attempt: JobAttempt, config: Mapping[str, Json]) -> str:
    """Return where people find the output of a job whose target keeps it."""
    if attempt.url:
        return attempt.url
    match attempt.job_type:
        case JobType.GLUE:
            return f"CloudWatch log groups /aws-glue/jobs/output and /aws-glue/jobs/error, stream {attempt.job}"
        case JobType.LAMBDA:
            return f"CloudWatch log group /aws/lambda/{config.get('functionName', '')}, request {attempt.job}"
        case _:
            return f"{attempt.job_type or 'job'} {attempt.job}".strip()


def safe_line(line: str, secrets: Iterable[str]) -> str:
    """Return a line without secrets and control characters, and not too long."""
    return redacted_text(hide_secrets(line[:LINE_CHARS_MAX], secrets))


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _texts(member)


def _variable(reference: str) -> str:
    return reference.removeprefix("${").removeprefix("$").removesuffix("}")
