"""`interlock runs show`: one run with its attempts, inputs, outputs and events."""

from worker.cli.terminal.console import Screen, json_lines, shown_time
from worker.cli.terminal.store_session import Exit, StoreAccess, show_failure
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.model.run_names import shown_key
from worker.core.time.durations import shown_record_duration
from worker.core.time.periods import Period
from worker.operations.records import AttemptRecord, EndRecord, EventRecord, RunRecord, as_json
from worker.operations.runs.run_detail import RunDetails, RunEvents
from worker.store.table import Tables


async def run_show(
    screen: Screen, access: StoreAccess, pipeline: PipelineId, period: Period, schedule: str | None, *, is_json: bool
) -> int:
    now = access.clock.now()
    async with access.tables() as tables:
        key = await _key(screen, tables, pipeline, period, schedule)
        if key is None:
            return Exit.WRONG
        details = RunDetails(tables)
        record = await details.record(key, now)
        events = await details.events(key, now)
    if record is None:
        show_failure(screen, f"there is no run {shown_key(key)}", f"`interlock explain {pipeline} {period}` shows why")
        return Exit.WRONG
    if is_json:
        for each in (record, *events.records):
            screen.record(as_json(each))
        screen.record(as_json(EndRecord(count=1 + len(events.records), complete=events.is_whole)))
    else:
        show_run(screen, key, record, events)
    return Exit.DONE


async def _key(
    screen: Screen, tables: Tables, pipeline: PipelineId, period: Period, schedule: str | None
) -> RunKey | None:
    """Return the run. If the schedule is named, the pipeline need not exist any more."""
    if schedule is not None:
        return RunKey(pipeline, ScheduleId(schedule), period)
    from worker.cli.terminal.arguments import chosen_schedule  # noqa: PLC0415  it loads what reads pipelines
    from worker.cli.terminal.pipeline_lookup import say_unknown  # noqa: PLC0415
    from worker.operations.pipelines.lookup import version_of  # noqa: PLC0415

    version = await version_of(tables, pipeline)
    if version is None:
        await say_unknown(screen, tables, pipeline)
        return None
    return RunKey(pipeline, chosen_schedule(version.pipeline, None).id, period)


def show_run(screen: Screen, key: RunKey, record: RunRecord, events: RunEvents) -> None:
    screen.line(f"{shown_key(key)}  {record.status}", style="bold")
    facts = (
        ("outcome", record.outcome or ""),
        ("reason", record.reason),
        ("waits for", record.waits_for or ""),
        ("created", "" if record.created_at is None else f"{shown_time(record.created_at)} by {record.origin or '?'}"),
        ("started", "" if record.started_at is None else shown_time(record.started_at)),
        ("ended", "" if record.ended_at is None else shown_time(record.ended_at)),
        ("duration", shown_record_duration(record.duration)),
        ("owner", record.owner or ""),
        ("configuration", record.config or ""),
        ("deadline", _deadline(record)),
    )
    screen.table([(name, value) for name, value in facts if value])
    screen.line("attempts", style="bold")
    screen.table([_attempt(each) for each in record.attempts])
    for title, data in (("inputs", record.inputs), ("outputs", record.outputs)):
        screen.line(title, style="bold")
        shown = as_json(record)[title]
        screen.document(json_lines(shown) if data else "  none are known")
    screen.line("events", style="bold")
    screen.table([_event(key, each) for each in events.records])
    if not events.is_whole:
        screen.remark("later events are not shown: `interlock events --pipeline` lists them", style="yellow")


def _deadline(record: RunRecord) -> str:
    if record.deadline is None:
        return ""
    return f"{shown_time(record.deadline.breach_at)}, {record.deadline.verdict or 'open'}"


def _attempt(attempt: AttemptRecord) -> tuple[str, ...]:
    started = "" if attempt.started_at is None else shown_time(attempt.started_at)
    ended = "" if attempt.ended_at is None else shown_time(attempt.ended_at)
    job = "" if attempt.job is None else f"{attempt.job.type or 'job'} {attempt.job.id}"
    category = attempt.category or ""
    return str(attempt.attempt), started, ended, attempt.outcome or "active", category, job, attempt.reason


def _event(key: RunKey, event: EventRecord) -> tuple[str, str, str]:
    return shown_time(event.at), event.event_type, event.message.removeprefix(str(key)).lstrip(": ")
