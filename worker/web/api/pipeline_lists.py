"""Reads pipelines and their rows page by page, for the API and the console."""

import asyncio
from typing import Final

from worker.config.versions import Unusable, Version
from worker.core.model import keys
from worker.operations.records import PipelineRecord
from worker.store.repos.pauses import pause_key, pause_of
from worker.store.repos.pipelines import StoredConfig
from worker.store.table import LISTS, Between, Row, TableName
from worker.web.api.context import ApiContext

_LAST: Final = "\U0010ffff"


async def list_rows(
    context: ApiContext, partition: str, prefix: str, after: str, limit: int, *, is_list: bool = False
) -> tuple[list[Row], bool]:
    """Return the next rows of a partition or a list by sort key, and whether there are more."""
    sort = LISTS.sort if is_list else "SK"
    begin = after or prefix
    span = Between(begin, f"{prefix}{_LAST}") if begin else None
    found: list[Row] = []
    cursor: str | None = None
    while len(found) <= limit:
        read = await context.tables.query(
            TableName.CONTROL,
            partition,
            sk=span,
            index=LISTS if is_list else None,
            limit=limit + 2 - len(found),  # one that was shown already, one to see whether there are more
            cursor=cursor,
        )
        found += [row for row in read.rows if not after or str(row[sort]) != after]
        cursor = read.cursor
        if cursor is None:
            break
    return found[:limit], len(found) > limit


def stored_config_of(row: Row) -> StoredConfig | None:
    pipeline, config = keys.pipeline_of(str(row["PK"])), row.get("config")
    return None if pipeline is None else StoredConfig(pipeline, config if isinstance(config, str) else None)


async def pipeline_records(context: ApiContext, stored: list[StoredConfig]) -> list[PipelineRecord]:
    rows = await context.tables.get_many(TableName.CONTROL, [pause_key(each.pipeline) for each in stored])
    now = context.clock.now()
    paused = {key.pk for key, row in rows.items() if (pause := pause_of(row)) and not pause.is_over(now)}
    records: list[PipelineRecord] = []
    for each in stored:
        records.append(await _record(context, each, is_paused=pause_key(each.pipeline).pk in paused))
        await asyncio.sleep(0)  # a configuration that is read for the first time takes a millisecond or two
    return records


async def _record(context: ApiContext, stored: StoredConfig, *, is_paused: bool) -> PipelineRecord:
    match await context.versions.judged_of(stored):
        case Unusable(problems=problems):
            return PipelineRecord(id=stored.pipeline, paused=is_paused, errors=problems)
        case Version(pipeline=pipeline, config_hash=config_hash):
            return PipelineRecord(
                id=stored.pipeline,
                owner=pipeline.owner or None,
                description=pipeline.description or None,
                schedules=[schedule.id for schedule in pipeline.schedules],
                job=pipeline.job.type.value if pipeline.job else None,
                config=config_hash,
                dry_run=pipeline.dry_run,
                paused=is_paused,
            )
