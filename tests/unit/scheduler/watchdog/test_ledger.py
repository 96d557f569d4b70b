"""The ledger: what is due stays due until it is settled, and what a successor must look at is known."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from scheduler.watchdog.expectations import Expectations
from worker.config.load import load_text
from worker.config.versions import Version
from worker.core.model.pipeline import PipelineId
from worker.core.schedule.checkpoints import CheckKind, Since

NOON = datetime(2026, 3, 3, 12, 0, tzinfo=UTC)
ORDERS = PipelineId("orders")


def a_version(cron: str = "0 * * * *", *, dry_run: bool = False) -> Version:
    text = f"""
pipeline: {{id: orders}}
schedule: {{cron: "{cron}", trigger: {{key: ready, check: exists}}}}
job: {{type: command, config: {{command: "true"}}}}
"""
    pipeline = load_text(text, today=NOON.date()).pipeline
    assert pipeline is not None
    return Version(replace(pipeline, dry_run=dry_run), cron)


def a_ledger(version: Version, since: datetime = NOON) -> Expectations:
    ledger = Expectations()
    put(ledger, version, since)
    return ledger


def put(ledger: Expectations, version: Version, since: datetime = NOON) -> None:
    ledger.put(version, {schedule.id: Since(since) for schedule in version.pipeline.schedules})


def periods(ledger: Expectations, now: datetime) -> list[str]:
    return [str(due.key.period) for due in ledger.due(now, CheckKind.BEGIN)]


def test_what_is_due_stays_due_until_it_is_settled() -> None:
    ledger = a_ledger(a_version())
    later = NOON + timedelta(hours=2, minutes=10)

    assert periods(ledger, later) == periods(ledger, later) == ["2026-03-03T11", "2026-03-03T12", "2026-03-03T13"]

    ledger.settle(ledger.due(later, CheckKind.BEGIN)[1])
    assert periods(ledger, later) == ["2026-03-03T11", "2026-03-03T13"]


def test_a_successor_need_not_look_at_what_is_settled_and_must_at_what_is_not() -> None:
    ledger = a_ledger(a_version())
    later = NOON + timedelta(hours=1, minutes=10)
    first, second = ledger.due(later, CheckKind.BEGIN)

    ledger.settle(second)
    assert ledger.settled_up_to(later) < first.moment.at

    ledger.settle(first)
    assert ledger.settled_up_to(later) == later


def test_of_one_concern_only_its_own_is_due() -> None:
    ledger = a_ledger(a_version())

    assert ledger.due(NOON + timedelta(hours=3), CheckKind.SIGNAL, CheckKind.WATCH) == []


def test_another_version_replaces_what_the_last_one_expected() -> None:
    ledger = a_ledger(a_version())
    ledger.due(NOON + timedelta(hours=1), CheckKind.BEGIN)

    put(ledger, a_version("30 14 * * *"), NOON + timedelta(hours=1))

    assert periods(ledger, NOON + timedelta(hours=9)) == ["2026-03-03"]


def test_of_a_pipeline_that_is_gone_or_rehearsed_nothing_is_expected() -> None:
    gone, rehearsed = a_ledger(a_version()), a_ledger(a_version(dry_run=True))
    gone.remove(ORDERS)

    for ledger in (gone, rehearsed):
        assert periods(ledger, NOON + timedelta(hours=9)) == []
        assert ORDERS not in ledger.versions


def test_what_is_looked_at_again_comes_again_and_holds_nobody_up() -> None:
    ledger = a_ledger(a_version("0 13 * * *"))
    now = NOON + timedelta(hours=2)
    [due] = ledger.due(now, CheckKind.BEGIN)

    ledger.look_again(due, now + timedelta(hours=1))

    assert ledger.settled_up_to(now) == now
    assert periods(ledger, now + timedelta(minutes=59)) == []
    assert periods(ledger, now + timedelta(hours=1)) == ["2026-03-03"]


def test_what_is_put_off_comes_again_and_a_successor_must_look_at_it_too() -> None:
    ledger = a_ledger(a_version("0 13 * * *"))
    now = NOON + timedelta(hours=2)
    [due] = ledger.due(now, CheckKind.BEGIN)

    ledger.put_off(due, now + timedelta(hours=1))

    assert ledger.settled_up_to(now) < due.moment.at
    assert periods(ledger, now) == []
    assert periods(ledger, now + timedelta(hours=1)) == ["2026-03-03"]
    ledger.settle(due)
    assert ledger.settled_up_to(now + timedelta(hours=1)) == now + timedelta(hours=1)
