"""Chat threads on every backend: one of many opens a thread, and everyone finds it."""

from dataclasses import replace
from datetime import datetime, timedelta

from tests.contract.storevalues import NOW, SECOND, a_pipeline, race
from tests.support.clock.manual import ManualClock
from worker.core.model import keys
from worker.store.repos.delivery.threads import (
    CLAIM,
    TOLD_MAX,
    Busy,
    Claimed,
    Open,
    ThreadHeader,
    ThreadKey,
    Threads,
)
from worker.store.table import Put, TableName, Tables


def a_thread() -> ThreadKey:
    return ThreadKey(a_pipeline(), "cron", "2026-03-03")


async def claim(tables: Tables, thread: ThreadKey, claimant: str, now: datetime = NOW) -> Open | Claimed | Busy:
    return await Threads(tables).claim(thread, channel="C1", claimant=claimant, now=now)


async def opened(tables: Tables, thread: ThreadKey, claimant: str, timestamp: str = "17.1", version: int = 1) -> bool:
    face = ThreadHeader(version=version, standing="failed", first="JOB_FAILED", latest="JOB_FAILED")
    return await Threads(tables).opened(
        thread, Claimed(), claimant=claimant, channel="C1", timestamp=timestamp, face=face, told="e1"
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
        face=ThreadHeader(version=1, standing="failed", first="JOB_FAILED", latest="JOB_FAILED"),
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
        noted = await threads.note(
            thread, seen, told=f"v{version}", face=ThreadHeader(version=version, standing="done")
        )
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

    assert await threads.note(thread, seen, told="mine", face=ThreadHeader(version=2))
    assert await threads.note(thread, seen, told="theirs", face=ThreadHeader(version=3)) is None

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
    assert await Threads(tables).note(thread, answer, told="e1", face=ThreadHeader(version=3))


async def test_a_claim_of_a_clock_that_was_ahead_is_not_waited_for_until_that_time_comes(tables: Tables) -> None:
    thread = a_thread()
    assert await claim(tables, thread, "a", NOW + timedelta(hours=1)) == Claimed()

    assert await claim(tables, thread, "b") == Claimed()
    assert await claim(tables, thread, "c") == Busy(), "what was claimed by the right clock stands"
    assert not await opened(tables, thread, "a")
    assert await opened(tables, thread, "b")


# --- incidents --------------------------------------------------------------------------------------------------------


async def test_a_thread_of_the_past_is_replaced_by_one_of_many_and_what_was_told_is_remembered(
    tables: Tables, backend: str
) -> None:
    thread, threads = ThreadKey(a_pipeline(), incident="ALARM#lag"), Threads(tables)
    await claim(tables, thread, "a")
    await opened(tables, thread, "a")

    async def claim_anew(claimant: str) -> Open | Claimed | Busy:
        return await threads.claim(
            thread, channel="C1", claimant=claimant, now=NOW, is_past=lambda seen: seen.timestamp == "17.1"
        )

    answers = await race(backend, *(claim_anew(f"alert-{number}") for number in range(5)))

    [claimed] = [answer for answer in answers if isinstance(answer, Claimed)]
    winner = next(f"alert-{number}" for number, answer in enumerate(answers) if answer is claimed)
    assert claimed.before.told == ("e1",)
    assert await threads.find(thread) is None
    assert await threads.opened(
        thread,
        claimed,
        claimant=winner,
        channel="C1",
        timestamp="18.1",
        face=ThreadHeader(version=9),
        told="e2",
        worst="ALERT",
    )
    seen = await found(tables, thread)
    assert (seen.timestamp, seen.told, seen.revision, seen.worst) == ("18.1", ("e1", "e2"), 2, "ALERT")


async def test_one_who_notes_in_a_thread_that_was_replaced_meanwhile_looks_again(tables: Tables) -> None:
    thread, threads = ThreadKey(a_pipeline(), incident="ALARM#lag"), Threads(tables)
    await claim(tables, thread, "a")
    await opened(tables, thread, "a")
    old = await found(tables, thread)
    claimed = await threads.claim(thread, channel="C1", claimant="b", now=NOW, is_past=lambda _: True)
    assert isinstance(claimed, Claimed)
    assert await threads.note(thread, old, told="late", face=old.face) is None
    await threads.opened(thread, claimed, claimant="b", channel="C1", timestamp="18.1", face=ThreadHeader(), told="e2")

    assert await threads.note(thread, old, told="late", face=old.face) is None
    assert (await found(tables, thread)).told == ("e1", "e2")


async def test_an_event_is_remembered_without_a_thread_and_the_thread_that_is_opened_later_knows_of_it(
    tables: Tables,
) -> None:
    thread, threads = a_thread(), Threads(tables)
    face = ThreadHeader(version=4, standing="recovered", latest="OK")

    for told in ("e1", "e2", "e1"):
        assert await threads.remember(thread, await threads.look(thread), told=told, face=face, worst="NOTE", now=NOW)

    assert await threads.find(thread) is None
    seen = await threads.look(thread)
    assert seen is not None
    assert (seen.told, seen.face, seen.is_open) == (("e1", "e2"), face, False)
    claimed = await claim(tables, thread, "a")
    assert isinstance(claimed, Claimed)
    assert (claimed.before.told, claimed.before.face) == (("e1", "e2"), face)
    assert not await threads.remember(
        thread, await threads.look(thread), told="e3", face=face, worst="NOTE", now=NOW
    ), "it is being opened"


async def test_an_event_is_remembered_in_a_thread_that_is_open(tables: Tables) -> None:
    thread, threads = a_thread(), Threads(tables)
    await claim(tables, thread, "a")
    await opened(tables, thread, "a", version=2)

    assert await threads.remember(
        thread,
        await threads.look(thread),
        told="e2",
        face=ThreadHeader(version=5, standing="done"),
        worst="ALERT",
        now=NOW,
    )

    seen = await found(tables, thread)
    assert (seen.told, seen.face.standing, seen.timestamp, seen.worst) == (("e1", "e2"), "done", "17.1", "ALERT")


async def test_threads_of_a_run_and_of_an_incident_do_not_meet(tables: Tables) -> None:
    pipeline = a_pipeline()
    keys_of_threads = [
        ThreadKey(pipeline),
        ThreadKey(pipeline, incident="CONFIG#configuration"),
        ThreadKey(pipeline, "a", "b"),
    ]

    answers = [await claim(tables, thread, f"c{number}") for number, thread in enumerate(keys_of_threads)]

    assert [type(answer) for answer in answers] == [Claimed] * 3


async def test_an_event_is_remembered_although_a_clock_that_was_ahead_claimed_its_thread(tables: Tables) -> None:
    thread, threads = a_thread(), Threads(tables)
    await claim(tables, thread, "a", NOW + timedelta(days=1))

    assert await threads.remember(
        thread, await threads.look(thread), told="e1", face=ThreadHeader(version=1), worst="NOTE", now=NOW
    )

    seen = await threads.look(thread)
    assert seen is not None
    assert seen.told == ("e1",)
