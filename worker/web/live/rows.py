"""Applies rows to the mirror: what a row that was written, read or removed means for the lists."""

import asyncio
from collections.abc import Mapping
from typing import Final, cast

from worker.core.model import keys
from worker.store.repos.pauses import UNTIL_MILLIS
from worker.store.rows import loose_text
from worker.store.table import Key, Row
from worker.web.live.catalogue import read_entry
from worker.web.live.facts import run_name, run_of, seconds, told_of, watch_of
from worker.web.live.mirror import KEPT_EVENTS, Mirror

LETTERS: Final = keys.dead_letter_pk("")
LARGE_TEXT_CHARS: Final = 8 * 1024


def apply_control(mirror: Mirror, key: Key, row: Row | None) -> None:
    """Apply a row of the control table as it is now; None: it does not exist."""
    pipeline = keys.pipeline_of(key.pk)
    if pipeline is None:
        return
    if key.sk.startswith(keys.TRIGGER):
        _apply_run(mirror, key, row)
    elif key.sk.startswith(keys.SLA):
        _apply_watch(mirror, key, row)
    elif key.sk == keys.PAUSE:
        _apply_pause(mirror, pipeline, row)


async def apply_config(mirror: Mirror, pipeline: str, row: Row | None) -> None:
    """Apply a deployed configuration; a thread reads a large text, so that the event loop does not wait."""
    config = None if row is None else row.get("config")
    text = config if isinstance(config, str) else None
    if row is None:
        mirror.forget_pipeline(pipeline)
    elif text is not None and len(text) > LARGE_TEXT_CHARS:
        mirror.see_pipeline(await asyncio.to_thread(read_entry, pipeline, text))
    else:
        mirror.see_pipeline(read_entry(pipeline, text))


def _apply_pause(mirror: Mirror, pipeline: str, row: Row | None) -> None:
    if row is None:
        mirror.forget_pause(pipeline)
        return
    until = row.get(UNTIL_MILLIS)
    mirror.see_pause(pipeline, until / 1000 if isinstance(until, int) else None)


def apply_event(mirror: Mirror, row: Row) -> None:
    """Apply an event; one of a type that the mirror does not keep only says that something happened."""
    event = told_of(row)
    if event is None:
        return
    if event.type in KEPT_EVENTS:
        mirror.see_event(event, _subject(row))
    mirror.note_event(event.pipeline, event.key)


def _apply_run(mirror: Mirror, key: Key, row: Row | None) -> None:
    run, name = None if row is None else run_of(row), run_name(key.pk, key.sk, keys.TRIGGER)
    if run is not None:
        mirror.see_run(run)
    elif name is not None:
        mirror.forget_run(name.key)


def _apply_watch(mirror: Mirror, key: Key, row: Row | None) -> None:
    watch, name = None if row is None else watch_of(row), run_name(key.pk, key.sk, keys.SLA)
    if watch is not None:
        mirror.see_watch(watch)
    elif name is not None:
        mirror.close_watch(name.key, None if row is None else seconds(row.get("breachAt")))


def _subject(row: Row) -> str:
    """Return the part of the monitoring that an event of the watchdog is about."""
    detail = row.get("detail")
    checks = cast("Mapping[str, object]", detail).get("checks") if isinstance(detail, Mapping) else None
    names = cast("list[object]", checks) if isinstance(checks, list | tuple) else []
    return ", ".join(str(each) for each in names) or loose_text(row, "message")
