"""Job log, reruns, events, chat threads and dead letters on every backend: nothing lost, nothing twice."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from tests.contract.storevalues import NOW, a_name, a_pipeline, a_run, race, run_key_of
from tests.manualclock import ManualClock
from worker.core import keys
from worker.core.events import Event
from worker.core.keys import RunKey
from worker.store import events, joblog, retention
from worker.store.attributes import expires_at
from worker.store.deadletters import HISTORY_MAX, PART_BYTES, DeadLetter, DeadLetters
from worker.store.events import Events, StoredEvent
from worker.store.joblog import JobLine, JobLog, JobRecord
from worker.store.reruns import Rerun, Reruns
from worker.store.runs import Runs
from worker.store.table import Key, Put, Row, StaleWrite, TableName, Tables, TooLarge
from worker.store.tail import LOOK_BACK, Tail
from worker.store.threads import CLAIM, TOLD_MAX, Busy, Claimed, Face, Open, ThreadKey, Threads
from worker.store.watched import WatchedTables

SECOND = timedelta(seconds=1)


async def rows_of(tables: Tables, table: TableName, pk: str) -> list[Row]:
    return list((await tables.query(table, pk)).rows)


# --- job log ----------------------------------------------------------------------------------------------------------


def a_line(line_id: str = "j1", **changes: str) -> JobLine:
    return replace(JobLine(id=line_id, at=NOW, attempt=1, event="fail"), **changes)


async def lines_of(tables: Tables, key: RunKey) -> list[JobRecord]:
    return [line async for line in JobLog(tables).list(key)]


async def test_two_lines_of_one_millisecond_are_both_kept(tables: Tables) -> None:
    key = run_key_of()

    await JobLog(tables).append(key, a_line("j1"))
    await JobLog(tables).append(key, a_line("j2"))

    assert [line.id for line in await lines_of(tables, key)] == ["j1", "j2"]


async def test_a_line_is_read_back_and_known_as_ours(tables: Tables) -> None:
    key = run_key_of()

    await JobLog(tables).append(key, a_line(run_id="jr_1", error="out of memory", category="TRANSIENT"))

    [line] = await lines_of(tables, key)
    assert (line.attempt, line.event, line.run_id, line.error) == (1, "fail", "jr_1", "out of memory")
    assert (line.at, line.category) == (NOW, "TRANSIENT")
    assert line.is_ours


async def test_the_log_is_kept_for_each_pipeline_schedule_and_period_apart(tables: Tables) -> None:
    key = run_key_of(period="2026-03-03")
    others = [
        run_key_of(),
        replace(key, schedule=keys.ScheduleId("stream")),
        run_key_of(key.pipeline, "2026-03-04"),
        run_key_of(key.pipeline, "2026-03-03T07"),
    ]
    for number, other in enumerate([key, *others]):
        await JobLog(tables).append(other, a_line(f"j{number}"))

    assert [line.id for line in await lines_of(tables, key)] == ["j0"]


async def test_lines_of_others_are_read_and_not_taken_for_ours(tables: Tables) -> None:
    key = run_key_of()
    await JobLog(tables).append(key, replace(a_line(), at=NOW + SECOND))
    written_by_others = {
        "PK": keys.pipeline_pk(key.pipeline),
        "SK": f"{keys.job_prefix(key)}{keys.millis_text(NOW)}",
        "event": "success",
        "runId": 17,
    }
    await tables.commit(Put(TableName.JOBLOG, written_by_others))

    first, second = await lines_of(tables, key)

    assert (first.event, first.at, first.attempt, first.is_ours) == ("success", NOW, None, False)
    assert second.is_ours


async def test_a_line_is_kept_for_thirty_days(tables: Tables) -> None:
    key = run_key_of()

    await JobLog(tables).append(key, replace(a_line(), at=NOW - timedelta(days=30, seconds=-1)))
    await JobLog(tables).append(key, replace(a_line("old"), at=NOW - timedelta(days=30)))

    assert [line.id for line in await lines_of(tables, key)] == ["j1"]


async def test_a_line_written_twice_makes_its_commit_stale(tables: Tables) -> None:
    run = await Runs(tables).save(a_run())
    await JobLog(tables).append(run.key, a_line())

    with pytest.raises(StaleWrite):
        await Runs(tables).save(run, joblog.append_write(run.key, a_line()))

    assert await Runs(tables).load(run.key) == run


# --- reruns -----------------------------------------------------------------------------------------------------------


def a_rerun(rerun_id: str = "r1") -> Rerun:
    return Rerun(id=rerun_id, reason="manual", at=NOW, attempt=2)


async def test_reruns_are_numbered_from_nought_in_the_order_they_came(tables: Tables) -> None:
    key = run_key_of()

    numbers = [await Reruns(tables).record(key, a_rerun(f"r{number}")) for number in range(12)]

    assert numbers == list(range(12))
    assert [record.id for record in await Reruns(tables).list(key)] == [f"r{number}" for number in range(12)]


async def test_reruns_recorded_at_once_all_get_a_number_of_their_own(tables: Tables, backend: str) -> None:
    key = run_key_of()

    numbers = await race(backend, *(Reruns(tables).record(key, a_rerun(f"r{number}")) for number in range(6)))

    assert set(numbers) == set(range(6))
    assert {record.id for record in await Reruns(tables).list(key)} == {f"r{number}" for number in range(6)}


async def test_a_rerun_recorded_again_keeps_its_number(tables: Tables) -> None:
    key = run_key_of()
    await Reruns(tables).record(key, a_rerun("r1"))
    await Reruns(tables).record(key, a_rerun("r2"))

    assert await Reruns(tables).record(key, a_rerun("r1")) == 0
    assert len(await Reruns(tables).list(key)) == 2


async def test_numbering_goes_on_after_records_of_others_even_if_one_is_missing(tables: Tables) -> None:
    key = run_key_of()
    for number in (0, 10):
        row = {"PK": keys.pipeline_pk(key.pipeline), "SK": keys.rerun_sk(key, number), "reason": "late-data"}
        await tables.commit(Put(TableName.RERUN, row))

    assert await Reruns(tables).record(key, a_rerun()) == 11


async def test_a_record_in_a_bigger_commit_makes_it_stale_if_its_number_was_taken(tables: Tables) -> None:
    run = await Runs(tables).save(a_run())
    record = await Reruns(tables).next_write(run.key, a_rerun("r1"))
    await Reruns(tables).record(run.key, a_rerun("r2"))

    with pytest.raises(StaleWrite):
        await Runs(tables).save(run, record)

    saved = await Runs(tables).save(run, await Reruns(tables).next_write(run.key, a_rerun("r1")))
    assert saved.version == run.version + 1
    assert [record.id for record in await Reruns(tables).list(run.key)] == ["r2", "r1"]


async def test_a_run_whose_last_reruns_are_past_their_time_can_be_rerun_before_the_table_deletes_them(
    tables: Tables, clock: ManualClock
) -> None:
    run = await Runs(tables).save(a_run())
    for rerun_id in ("r1", "r2"):
        await Reruns(tables).record(run.key, a_rerun(rerun_id))
    clock.advance(retention.RERUNS + timedelta(hours=1))
    later = replace(a_rerun("r3"), at=clock.now())

    await Runs(tables).save(run, await Reruns(tables).next_write(run.key, later))

    assert [record.id for record in await Reruns(tables).list(run.key)] == ["r3"]


# --- events -----------------------------------------------------------------------------------------------------------


def an_event(event_id: str = "e1", at: datetime = NOW, **changes: str) -> Event:
    return replace(Event(id=event_id, type="JOB_FAILED", at=at), **changes)


async def test_an_event_is_kept_whole(tables: Tables) -> None:
    detail = {"runId": "jr_1", "counts": [1, Decimal("0.1")], "nested": {"empty": "", "none": None}, "big": 10**20}
    event = Event(
        id="e1",
        type="POST_RUN_DRIFT",
        at=NOW,
        pipeline=a_pipeline(),
        schedule="cron",
        period="2026-03-03",
        message="drift",
        detail=detail,
    )

    await tables.commit(events.told_write(event))

    assert await Events(tables).latest(event.pipeline) == [StoredEvent(event, out=True)]


async def test_two_events_of_one_type_and_millisecond_are_both_kept(tables: Tables) -> None:
    pipeline = a_pipeline()

    await tables.commit(*(events.told_write(an_event(event_id, pipeline=pipeline)) for event_id in ("e1", "e2")))

    assert {told.event.id for told in await Events(tables).latest(pipeline)} == {"e1", "e2"}


async def test_an_event_of_others_is_kept_once_and_not_sent(tables: Tables) -> None:
    event = an_event(pipeline=a_pipeline())

    assert await Events(tables).put_foreign(event)
    assert not await Events(tables).put_foreign(event)

    assert await Events(tables).latest(event.pipeline) == [StoredEvent(event, out=False)]


async def test_an_event_without_a_pipeline_has_a_home_too(tables: Tables) -> None:
    event = an_event(a_name(), type=a_name())

    await tables.commit(events.told_write(event))

    assert [told.event async for told in Events(tables).of_type(event.type, NOW)] == [event]


async def test_the_latest_events_of_a_pipeline_are_listed_without_its_threads(tables: Tables) -> None:
    pipeline = a_pipeline()
    await tables.commit(*(events.told_write(an_event(f"e{n}", NOW + n * SECOND, pipeline=pipeline)) for n in range(4)))
    await Threads(tables).claim(ThreadKey(pipeline), channel="c", claimant="a", now=NOW)

    assert [told.event.id for told in await Events(tables).latest(pipeline, limit=3)] == ["e3", "e2", "e1"]


async def test_a_damaged_event_hides_no_other(tables: Tables) -> None:
    pipeline = a_pipeline()
    await tables.commit(events.told_write(an_event(pipeline=pipeline)))
    damaged = {"PK": keys.pipeline_pk(pipeline), "SK": keys.stamped_sk(NOW, "X"), "eventType": "X", "detail": 3}
    await tables.commit(Put(TableName.EVENTS, damaged))

    assert [told.event.type for told in await Events(tables).latest(pipeline)] == ["X", "JOB_FAILED"]


async def test_events_of_one_type_are_found_over_all_pipelines_by_time(tables: Tables) -> None:
    event_type = a_name()
    for number in range(4):
        event = an_event(f"e{number}", NOW + number * SECOND, type=event_type, pipeline=a_pipeline())
        await tables.commit(events.told_write(event))

    found = Events(tables).of_type(event_type, NOW + SECOND, NOW + 2 * SECOND)

    assert [told.event.id async for told in found] == ["e1", "e2"]


async def test_a_reader_gets_every_event_once_whatever_the_size_of_its_bites(tables: Tables) -> None:
    pipeline = a_pipeline()
    for number in range(7):
        await tables.commit(events.told_write(an_event(f"e{number}", NOW + number * SECOND, pipeline=pipeline)))

    tail, had = Tail.starting(NOW), list[str]()
    for _ in range(5):
        news, tail = await Events(tables).since(pipeline, tail, NOW + timedelta(hours=1), limit=2)
        had += [told.event.id for told in news]

    assert had == [f"e{number}" for number in range(7)]


async def test_a_reader_gets_an_event_that_was_committed_late(tables: Tables) -> None:
    pipeline = a_pipeline()
    await tables.commit(events.told_write(an_event("fast", NOW, pipeline=pipeline)))
    first, tail = await Events(tables).since(pipeline, Tail.starting(NOW - LOOK_BACK), NOW + SECOND)

    await tables.commit(events.told_write(an_event("slow", NOW - 10 * SECOND, pipeline=pipeline)))
    second, tail = await Events(tables).since(pipeline, tail, NOW + 2 * SECOND)
    third, tail = await Events(tables).since(pipeline, tail, NOW + 3 * SECOND)

    assert [[told.event.id for told in news] for news in (first, second, third)] == [["fast"], ["slow"], []]


async def test_a_reader_forgets_what_no_commit_can_still_precede(tables: Tables) -> None:
    pipeline = a_pipeline()
    await tables.commit(events.told_write(an_event(pipeline=pipeline)))
    _, near = await Events(tables).since(pipeline, Tail.starting(NOW), NOW + SECOND)

    nothing, far = await Events(tables).since(pipeline, near, NOW + timedelta(hours=1))

    assert len(near.seen) == 1
    assert (nothing, far.seen) == ([], frozenset())


# --- chat threads -----------------------------------------------------------------------------------------------------


def a_thread() -> ThreadKey:
    return ThreadKey(a_pipeline(), "cron", "2026-03-03")


async def claim(tables: Tables, thread: ThreadKey, claimant: str, now: datetime = NOW) -> Open | Claimed | Busy:
    return await Threads(tables).claim(thread, channel="C1", claimant=claimant, now=now)


async def opened(tables: Tables, thread: ThreadKey, claimant: str, timestamp: str = "17.1", version: int = 1) -> bool:
    face = Face(version=version, standing="failed", first="JOB_FAILED", latest="JOB_FAILED")
    return await Threads(tables).opened(
        thread, claimant=claimant, channel="C1", timestamp=timestamp, face=face, told="e1"
    )


async def found(tables: Tables, thread: ThreadKey) -> Open:
    answer = await Threads(tables).find(thread)
    assert answer is not None
    return answer


async def test_of_many_first_alerts_one_opens_the_thread(tables: Tables, backend: str) -> None:
    thread = a_thread()

    answers = await race(backend, *(claim(tables, thread, f"alert-{number}") for number in range(5)))

    assert sorted(type(answer).__name__ for answer in answers) == ["Busy"] * 4 + ["Claimed"]


async def test_an_open_thread_is_found_by_everyone(tables: Tables) -> None:
    thread = a_thread()
    assert await Threads(tables).find(thread) is None
    await Threads(tables).claim(thread, channel="#alerts", claimant="a", now=NOW)
    assert await Threads(tables).find(thread) is None, "it is claimed, not open"
    assert await opened(tables, thread, "a")

    expected = Open(
        channel="C1",
        timestamp="17.1",
        routed_to="#alerts",
        face=Face(version=1, standing="failed", first="JOB_FAILED", latest="JOB_FAILED"),
        told=("e1",),
        revision=1,
    )
    assert await claim(tables, thread, "b") == expected
    assert await found(tables, thread) == expected


async def test_a_claim_asked_for_again_is_still_ones_own(tables: Tables) -> None:
    thread = a_thread()
    await claim(tables, thread, "a")

    assert await claim(tables, thread, "a", NOW + CLAIM - SECOND) == Claimed()
    assert await claim(tables, thread, "b", NOW + CLAIM + SECOND) == Busy(), "it was prolonged"


async def test_a_claim_that_ran_out_is_anothers_and_its_late_post_does_not_count(tables: Tables) -> None:
    thread = a_thread()
    await claim(tables, thread, "a")

    assert await claim(tables, thread, "b", NOW + CLAIM + SECOND) == Claimed()

    assert not await opened(tables, thread, "a", "17.1")
    assert await opened(tables, thread, "b", "17.2")
    assert (await found(tables, thread)).timestamp == "17.2"


async def test_saying_twice_that_a_thread_is_open_is_harmless(tables: Tables) -> None:
    thread = a_thread()
    await claim(tables, thread, "a")

    answers = [await opened(tables, thread, "a") for _ in range(2)]

    assert answers == [True, True]


async def test_the_first_message_never_goes_back_to_an_older_version(tables: Tables) -> None:
    thread, threads = a_thread(), Threads(tables)
    await claim(tables, thread, "a")
    await opened(tables, thread, "a", version=2)
    shown: list[int] = []

    for version in (1, 5, 5, 4, 6):
        seen = await found(tables, thread)
        noted = await threads.note(thread, seen, told=f"v{version}", face=Face(version=version, standing="done"))
        assert noted is not None
        assert noted == await found(tables, thread)
        shown.append(noted.face.version)

    assert shown == [2, 5, 5, 5, 6]
    assert (await found(tables, thread)).told == ("e1", "v1", "v5", "v5", "v4", "v6")


async def test_of_two_who_note_at_once_one_looks_again(tables: Tables) -> None:
    thread, threads = a_thread(), Threads(tables)
    await claim(tables, thread, "a")
    await opened(tables, thread, "a")
    seen = await found(tables, thread)

    assert await threads.note(thread, seen, told="mine", face=Face(version=2))
    assert await threads.note(thread, seen, told="theirs", face=Face(version=3)) is None

    assert (await found(tables, thread)).told == ("e1", "mine")


async def test_a_thread_remembers_a_bounded_number_of_events(tables: Tables) -> None:
    thread, threads = a_thread(), Threads(tables)
    await claim(tables, thread, "a")
    await opened(tables, thread, "a")
    seen = await found(tables, thread)
    told = tuple(f"{number:036d}" for number in range(TOLD_MAX + 1))

    assert await threads.note(thread, replace(seen, told=told[:-1]), told=told[-1], face=seen.face)

    assert (await found(tables, thread)).told == told[1:]


async def test_a_thread_past_its_time_is_opened_anew(tables: Tables, clock: ManualClock) -> None:
    thread = a_thread()
    await claim(tables, thread, "a")
    await opened(tables, thread, "a", version=9)

    clock.advance(timedelta(days=90))

    assert await claim(tables, thread, "b", clock.now()) == Claimed()
    assert await opened(tables, thread, "b", "18.1")


async def test_a_thread_the_reference_opened_goes_on(tables: Tables) -> None:
    thread = a_thread()
    row = {
        "PK": keys.pipeline_pk(thread.pipeline),
        "SK": "THREAD#cron#2026-03-03",
        "threadTs": "17.0",
        "channelId": "C0",
    }
    await tables.commit(Put(TableName.EVENTS, row))

    answer = await claim(tables, thread, "a")

    assert answer == Open(channel="C0", timestamp="17.0", routed_to="C0")
    assert isinstance(answer, Open)
    assert await Threads(tables).note(thread, answer, told="e1", face=Face(version=3))


# --- dead letters -----------------------------------------------------------------------------------------------------


def a_letter(source: str, letter_id: str = "l1") -> DeadLetter:
    return DeadLetter(id=letter_id, source=source, at=NOW, reason="not JSON", history=("try 1", "try 2"))


@pytest.mark.parametrize("size", [0, 10, PART_BYTES, 2 * PART_BYTES + 1])
async def test_a_dead_letter_is_kept_whole_whatever_its_size(tables: Tables, size: int) -> None:
    letter, body = a_letter(a_name()), bytes(number % 251 for number in range(size))

    await DeadLetters(tables).put(letter, body, now=NOW)

    assert await DeadLetters(tables).list(letter.source) == [letter]
    assert await DeadLetters(tables).body(letter) == body


async def test_a_dead_letter_beyond_a_commit_is_refused_and_not_half_kept(tables: Tables) -> None:
    letter = a_letter(a_name())

    with pytest.raises(TooLarge):
        await DeadLetters(tables).put(letter, bytes(5_000_000), now=NOW)

    assert await DeadLetters(tables).list(letter.source) == []


async def test_a_dead_letter_kept_again_is_there_once(tables: Tables) -> None:
    letter = a_letter(a_name())

    await DeadLetters(tables).put(letter, b"body", now=NOW)
    await DeadLetters(tables).put(letter, b"body", now=NOW)

    assert await DeadLetters(tables).list(letter.source) == [letter]


async def test_a_dead_letter_of_an_old_record_is_kept_as_long_as_any_other(tables: Tables) -> None:
    """Kinesis may hold a record for a year; a letter that expires before it is written was never kept."""
    letter = replace(a_letter(a_name()), at=NOW - timedelta(days=364))

    await DeadLetters(tables).put(letter, b"body", now=NOW)

    rows = await rows_of(tables, TableName.EVENTS, keys.dead_letter_pk(letter.source))
    parts = await rows_of(tables, TableName.EVENTS, keys.dead_letter_body_pk(letter.source, letter.id))
    assert [expires_at(row) for row in (*rows, *parts)] == [NOW + retention.DEAD_LETTERS] * 2


async def test_failures_of_what_may_become_a_letter_are_counted_once_for_each_receipt(tables: Tables) -> None:
    letters, source = DeadLetters(tables), a_name()
    receipts = [("m1", 1), ("m2", 1), ("m1", 2), ("m1", 2), ("m1", 4)]  # one told twice: its first answer was lost

    counted = [await letters.count_failure(source, letter_id, receipt, NOW) for letter_id, receipt in receipts]

    assert counted == [1, 1, 2, 2, 3]
    assert await letters.list(source) == []


async def test_the_body_of_a_letter_that_is_dropped_meanwhile_is_gone(tables: Tables) -> None:
    letter = a_letter(a_name())
    await DeadLetters(tables).put(letter, b"body", now=NOW)

    class DroppedMeanwhile(WatchedTables):
        async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
            assert await DeadLetters(tables).drop(letter)
            return await super().get_many(table, keys)

    assert await DeadLetters(DroppedMeanwhile(tables)).body(letter) is None


async def test_a_dropped_letter_leaves_nothing_behind(tables: Tables) -> None:
    letter, other = a_letter(a_name()), "l2"
    await DeadLetters(tables).put(letter, bytes(PART_BYTES + 1), now=NOW)
    await DeadLetters(tables).put(a_letter(letter.source, other), b"x", now=NOW)

    assert await DeadLetters(tables).drop(letter)

    assert not await DeadLetters(tables).drop(letter)
    assert await DeadLetters(tables).body(letter) is None
    assert [left.id for left in await DeadLetters(tables).list(letter.source)] == [other]
    bodies = keys.dead_letter_body_pk(letter.source, letter.id)
    assert await rows_of(tables, TableName.EVENTS, bodies) == []


async def test_only_the_last_tries_are_kept(tables: Tables) -> None:
    letter = replace(a_letter(a_name()), history=tuple(f"try {number}" for number in range(HISTORY_MAX + 5)))

    await DeadLetters(tables).put(letter, b"", now=NOW)

    [kept] = await DeadLetters(tables).list(letter.source)
    assert kept.history == letter.history[-HISTORY_MAX:]
