"""Check tables of the Lambda edition, and allow cron schedules to start runs."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.config.deploy import accept
from worker.config.files import yaml_files
from worker.core.errors import ConfigError
from worker.core.model.ids import PipelineId
from worker.operations.migrate.check import check
from worker.operations.migrate.findings import MigrationFinding, Weight
from worker.operations.migrate.survey import survey
from worker.operations.pipelines.lookup import suggestion
from worker.store.backends.open import open_whole_table, opened_as_found
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Tables
from worker.store.url import DynamoPlace, locate

STYLES: Final = {Weight.UNDERSTOOD: "green", Weight.CHANGES: "yellow", Weight.REFUSED: "red"}


HOW_TO_NAME: Final = "name them, or give --files DIR, or --listed, or --read-all"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSelector:
    """PipelineSelector selects pipelines: the union of all its fields."""

    named: Sequence[PipelineId] = ()
    files: Path | None = None
    listed: bool = False
    read_all: bool = False

    @property
    def is_said(self) -> bool:
        return bool(self.named or self.files or self.listed or self.read_all)


async def run_check(screen: Screen, access: StoreAccess, which: PipelineSelector, *, quiet: bool, as_json: bool) -> int:
    """Check the selected pipelines, read-only.

    Return exit code 1 if a finding changes a meaning or is refused, or if there are no pipelines, and 2 if a name is
    unknown.
    """
    require_said(which)
    tally: Counter[Weight] = Counter()
    async with opened_as_found(access.url, access.clock) as tables:
        pipelines = await chosen(screen, access, tables, which)
        unknown = await unknown_names(tables, which, pipelines)
        for pipeline in pipelines:
            found = list(check(await survey(tables, pipeline), access.clock.now()))
            tally.update(finding.weight for finding in found)
            shown = [finding for finding in found if not quiet or finding.weight is not Weight.UNDERSTOOD]
            _show(screen, pipeline, shown, as_json=as_json)
    _sum_up(screen, len(pipelines), tally, as_json=as_json)
    if unknown:
        return Exit.WRONG
    return Exit.PROBLEMS if tally[Weight.CHANGES] or tally[Weight.REFUSED] or not pipelines else Exit.DONE


async def run_accept(
    screen: Screen, access: StoreAccess, which: PipelineSelector, *, keep_silent: bool, dry_run: bool, as_json: bool
) -> int:
    """Accept pipelines: list them and, unless `keep_silent`, allow their cron to start runs from now on."""
    require_said(which)
    async with access.tables() as tables:
        pipelines = await chosen(screen, access, tables, which)
        if missing := await _missing(tables, pipelines):
            raise await _no_such(tables, missing, "nothing was changed")
        for pipeline in pipelines:
            done = await _accept_one(tables, access, pipeline, keep_silent=keep_silent, dry_run=dry_run)
            if as_json:
                screen.record({"type": "pipeline", "id": pipeline, "done": list(done), "dryRun": dry_run})
            else:
                screen.line(f"{pipeline}: {', '.join(done) or 'was accepted already'}")
    if not as_json:
        ending = "nothing written: this was a dry run" if dry_run else "done"
        screen.line(f"{counted(len(pipelines), 'pipeline')}; {ending}")
    return Exit.DONE


async def _accept_one(
    tables: Tables, access: StoreAccess, pipeline: PipelineId, *, keep_silent: bool, dry_run: bool
) -> list[str]:
    if dry_run:
        found = await survey(tables, pipeline)
        would = [] if found.is_listed else ["would be listed"]
        return would if keep_silent or found.is_accepted else [*would, "its cron would be let start runs"]
    done = ["now listed"] if await Pipelines(tables).list_deployed(pipeline) else []
    if not keep_silent and await accept(tables, pipeline, access.clock):
        done.append("its cron may start runs from now on")
    return done


def require_said(which: PipelineSelector) -> None:
    """Raise `ConfigError` if no pipelines were selected, so that nothing is read by accident."""
    if not which.is_said:
        raise ConfigError(f"no pipelines were named, and the Lambda edition keeps no list of them; {HOW_TO_NAME}")


async def unknown_names(tables: Tables, which: PipelineSelector, pipelines: Sequence[PipelineId]) -> list[PipelineId]:
    """Return the given names that no pipeline has.

    A pipeline that only a file names may be missing; the check reports that. Raises `ConfigError` if there is nothing
    else to check.
    """
    unknown = await _missing(tables, which.named)
    if unknown and len(unknown) == len(pipelines):
        raise await _no_such(tables, unknown, "nothing was checked")
    return unknown


async def _no_such(tables: Tables, names: Sequence[PipelineId], outcome: str) -> ConfigError:
    meant = [hint for name in names if (hint := await suggestion(tables, name))]
    return ConfigError(f"there is no pipeline {', '.join(names)}; {outcome}: {' '.join(meant) or 'correct the names'}")


async def _missing(tables: Tables, pipelines: Sequence[PipelineId]) -> list[PipelineId]:
    return [pipeline for pipeline in dict.fromkeys(pipelines) if await Pipelines(tables).get(pipeline) is None]


async def chosen(screen: Screen, access: StoreAccess, tables: Tables, which: PipelineSelector) -> list[PipelineId]:
    """Return the selected pipelines, sorted and without duplicates."""
    found = dict.fromkeys(which.named)
    if which.files:
        # The Lambda edition stored each file under its name, whatever the id inside.
        found |= dict.fromkeys(PipelineId(path.stem) for path in yaml_files(which.files))
    if which.listed:
        found |= dict.fromkeys([stored.pipeline async for stored in Pipelines(tables).list()])
    if which.read_all:
        found |= dict.fromkeys([pipeline async for pipeline in _read_all(screen, access)])
    return sorted(found)


async def _read_all(screen: Screen, access: StoreAccess) -> AsyncIterator[PipelineId]:
    place = locate(access.url)
    if not isinstance(place, DynamoPlace):
        raise ConfigError("--read-all is for DynamoDB tables of the Lambda edition; here, use --listed")
    table = open_whole_table(place, access.clock)
    size, done = await table.size(), 0
    screen.remark(
        f"reading all of the control table once: about {size.rows:,} rows, {size.bytes / 1e6:,.1f} MB, "
        f"{size.read_units:,} read units"
    )
    async for stretch in table.pipelines():
        done += stretch.rows
        screen.remark(f"read {done:,} rows")
        for pipeline in stretch.pipelines:
            yield pipeline


def _show(screen: Screen, pipeline: PipelineId, found: Sequence[MigrationFinding], *, as_json: bool) -> None:
    if as_json:
        for finding in found:
            screen.record(
                {
                    "type": "finding",
                    "pipeline": finding.pipeline,
                    "topic": finding.topic.value,
                    "weight": finding.weight.value,
                    "what": finding.what,
                    "remedy": finding.remedy,
                }
            )
    elif found:
        screen.line(pipeline, style="bold")
        screen.table(
            [(finding.weight.value, finding.topic.value, _sentence(finding)) for finding in found],
            styles=[STYLES[finding.weight] for finding in found],
        )


def _sentence(finding: MigrationFinding) -> str:
    return f"{finding.what}; {finding.remedy}" if finding.remedy else finding.what


def _sum_up(screen: Screen, pipelines: int, tally: Counter[Weight], *, as_json: bool) -> None:
    if as_json:
        screen.record({"type": "summary", "pipelines": pipelines, **{weight.value: tally[weight] for weight in Weight}})
        return
    counts = f"{tally[Weight.UNDERSTOOD]} understood, {tally[Weight.CHANGES]} change, {tally[Weight.REFUSED]} refused"
    screen.line(f"{counted(pipelines, 'pipeline')}: {counts}; nothing was written")
