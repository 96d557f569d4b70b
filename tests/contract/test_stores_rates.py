"""Rates that workers share, and what waits to be told together, on every backend."""

from datetime import timedelta

from tests.contract.storevalues import NOW, SECOND, a_pipeline, race
from worker.core.model.events import Event
from worker.core.time.skew import SKEW_MAX
from worker.store.repos.delivery.grouped_alerts import DELETED_AT_ONCE, GroupedAlerts, waiting_write
from worker.store.repos.delivery.rates import AHEAD_MAX, HELD_MAX, SLACK, Rates
from worker.store.table import Tables

MINUTE = timedelta(minutes=1)
EVERY = timedelta(seconds=12)


async def reserved(tables: Tables, name: str, *, after: timedelta = timedelta(), wait_max: timedelta = MINUTE) -> float:
    """Take a turn; say how many seconds after the beginning it is."""
    turn = await Rates(tables).reserve(name, every=SECOND, now=NOW + after, wait_max=wait_max)
    return (turn - NOW).total_seconds()


async def taken(tables: Tables, name: str, *, after: timedelta = timedelta()) -> bool:
    return not await Rates(tables).take(name, every=EVERY, burst=5, now=NOW + after)


async def test_of_many_who_take_a_turn_at_once_each_gets_its_own(tables: Tables, backend: str) -> None:
    name = a_pipeline()

    turns = await race(backend, *(reserved(tables, name) for _ in range(6)))

    assert sorted(turn for turn in turns if isinstance(turn, float)) == [0, 1, 2, 3, 4, 5]


async def test_a_turn_that_is_free_is_now_and_rates_know_nothing_of_each_other(tables: Tables) -> None:
    name = a_pipeline()

    assert await reserved(tables, name) == 0
    assert await reserved(tables, f"{name} other") == 0
    assert await reserved(tables, name, after=timedelta(seconds=10)) == 10


async def test_a_turn_that_is_too_far_away_is_not_taken(tables: Tables) -> None:
    name = a_pipeline()
    for _ in range(4):
        await reserved(tables, name)

    assert [await reserved(tables, name, wait_max=2 * SECOND) for _ in range(2)] == [4, 4]
    assert await reserved(tables, name) == 4


async def test_a_clock_that_was_ahead_keeps_nobody_waiting(tables: Tables) -> None:
    name = a_pipeline()
    await reserved(tables, name, after=AHEAD_MAX + MINUTE)
    await Rates(tables).hold(name, until=NOW + 3 * HELD_MAX, now=NOW + 2 * HELD_MAX)

    assert await reserved(tables, name) == 0
    assert await reserved(tables, name) == 1


async def test_who_is_held_gets_no_turn_before_and_the_longer_hold_counts(tables: Tables) -> None:
    name, rates = a_pipeline(), Rates(tables)
    await reserved(tables, name)
    for seconds in (30, 40, 20):
        await rates.hold(name, until=NOW + seconds * SECOND, now=NOW)

    assert await rates.held_until(name, NOW) == NOW + 40 * SECOND
    assert await reserved(tables, name, wait_max=SECOND) == 40
    assert [await reserved(tables, name) for _ in range(2)] == [40, 41]
    assert await rates.held_until(name, NOW + MINUTE) == NOW + MINUTE


async def test_a_hold_has_an_end_whatever_is_asked_for(tables: Tables) -> None:
    name, rates = a_pipeline(), Rates(tables)

    await rates.hold(name, until=NOW + timedelta(days=1), now=NOW)

    assert await rates.held_until(name, NOW) == NOW + HELD_MAX


async def test_of_many_who_take_a_token_at_once_as_many_get_one_as_there_are(tables: Tables, backend: str) -> None:
    name = a_pipeline()

    answers = await race(backend, *(taken(tables, name) for _ in range(8)))

    assert answers.count(True) == 5


async def test_tokens_come_back_one_after_another_up_to_all_of_them(tables: Tables) -> None:
    name = a_pipeline()
    assert [await taken(tables, name) for _ in range(6)] == [True] * 5 + [False]

    assert not await taken(tables, name, after=EVERY - SLACK - SECOND)
    assert [await taken(tables, name, after=EVERY) for _ in range(2)] == [True, False]
    assert [await taken(tables, name, after=MINUTE * 60) for _ in range(6)] == [True] * 5 + [False]


async def test_tokens_that_come_back_soon_are_lent_once_and_not_all_of_them(tables: Tables) -> None:
    """The slack for clocks must not make the row look like that of a wrong clock, which is not believed."""
    name, rates = a_pipeline(), Rates(tables)

    answers = [await rates.take(name, every=SLACK, burst=20, now=NOW) for _ in range(60)]
    assert sum(not answer for answer in answers) == 21

    assert [await taken(tables, f"{name} slow") for _ in range(6)] == [True] * 5 + [False]
    assert [await taken(tables, f"{name} slow", after=EVERY - SLACK) for _ in range(6)] == [True] + [False] * 5


async def test_a_clock_that_is_a_little_behind_finds_no_tokens_that_another_took(tables: Tables) -> None:
    name = a_pipeline()
    for _ in range(5):
        await taken(tables, name, after=SKEW_MAX)

    assert not await taken(tables, name)


async def test_tokens_that_a_clock_ahead_took_are_there_for_the_others(tables: Tables) -> None:
    name = a_pipeline()
    for _ in range(5):
        await taken(tables, name, after=60 * MINUTE)

    assert await taken(tables, name)


# --- what waits -------------------------------------------------------------------------------------------------------


def an_event(event_id: str, event_type: str = "SLA_BREACH", seconds: int = 0) -> Event:
    return Event(
        id=event_id,
        type=event_type,
        at=NOW + seconds * SECOND,
        pipeline="orders",
        schedule="daily",
        period="2026-03-03",
        message="late",
    )


async def test_what_waits_is_found_by_channel_and_type_in_order_and_dropped_once_it_is_told(tables: Tables) -> None:
    grouped, one, two = GroupedAlerts(tables), f"#{a_pipeline()}", f"#{a_pipeline()}"
    rows = [(one, an_event("b", seconds=1)), (one, an_event("a", seconds=2)), (one, an_event("c", "SLA_BREACH_X"))]
    for channel, event in [*rows, *rows, (two, an_event("d"))]:
        await tables.commit(waiting_write(channel, event, "ALERT", NOW))

    found = [group for group in await grouped.groups() if group[0] in {one, two}]
    assert sorted(found) == sorted([(one, "SLA_BREACH"), (one, "SLA_BREACH_X"), (two, "SLA_BREACH")])
    waiting = await grouped.of(one, "SLA_BREACH", 10)
    assert [each.event for each in waiting] == [rows[0][1], rows[1][1]]
    assert {each.severity for each in waiting} == {"ALERT"}
    assert [each.event.id for each in await grouped.of(one, "SLA_BREACH", 1)] == ["b"]

    await grouped.drop(one, waiting)
    await grouped.drop(one, waiting)
    assert await grouped.of(one, "SLA_BREACH", 10) == []
    assert [group for group in await grouped.groups() if group[0] == one] == [(one, "SLA_BREACH_X")]


async def test_a_group_of_any_size_is_read_and_dropped(tables: Tables) -> None:
    grouped, channel = GroupedAlerts(tables), f"#{a_pipeline()}"
    count = 2 * DELETED_AT_ONCE + 3
    for number in range(count):
        await tables.commit(waiting_write(channel, an_event(f"e{number:03}"), "ALERT", NOW))

    waiting = await grouped.of(channel, "SLA_BREACH", 1_000)
    assert len(waiting) == count
    await grouped.drop(channel, waiting)

    assert await grouped.of(channel, "SLA_BREACH", 1_000) == []
