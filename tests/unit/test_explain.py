"""Every gate: when it is open, when it is closed, and what is said to open it."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.builders import HOUR, KEY, MINUTE, NOON, a_key, a_pipeline, a_run, a_schedule, a_watch
from worker.core.calendars import Exclusion
from worker.core.checks import Check
from worker.core.dryrun import DryRun, DryState
from worker.core.keys import RunKey
from worker.core.pipeline import Match, Pipeline, PipelineId, Schedule, ScheduleId, Sla, StartBy, Trigger, Undated
from worker.core.rules import Group, Mode, Rule
from worker.core.run import Pause
from worker.core.runstate import AfterStop, ForeignRun, Outcome, Run, Spent, StartStep, State
from worker.core.sla import Deadline
from worker.core.values import Json
from worker.core.watchstate import Verdict
from worker.crontext import parse_cron
from worker.explain import explain, explain_unusable
from worker.explaining.explanation import Explanation, Finding, Gate, Passage
from worker.explaining.sight import AnyRun, ConfigSeen, Consumed, Sight
from worker.store.requests import RerunRequest
from worker.store.sensors import Sensor

BERLIN = ZoneInfo("Europe/Berlin")
COUNT = Rule(key="orders", field="count", check=Check.GTE, value=1000)
READY = Trigger(rule=Rule(key="ready", field="status", check=Check.EQUALS, value="done"))
CONFIG = ConfigSeen(applied="v1", in_force="v1")


def a_sight(
    pipeline: Pipeline | None = None,
    *,
    key: RunKey = KEY,
    sensors: dict[str, dict[str, Json]] | None = None,
    **changes: object,
) -> Sight:
    """A pipeline started by sensor `ready` whose rule wants 1000 orders; sensors by the key they are stored under."""
    pipeline = pipeline or rules_pipeline()
    stored = {name.partition("#")[0]: Sensor(name, data) for name, data in (sensors or {}).items()}
    sight = Sight(key=key, now=NOON, pipeline=pipeline, schedule=pipeline.schedules[0], config=CONFIG, sensors=stored)
    return replace(sight, **changes)


def rules_pipeline(
    schedule: Schedule | None = None, *, job: dict[str, object] | None = None, dry_run: bool = False
) -> Pipeline:
    rules = Group(members=(COUNT,))
    return a_pipeline(schedule=schedule or a_schedule(trigger=READY), rules=rules, job=job, dry_run=dry_run)


def cron_schedule(text: str = "0 6 * * *", **changes: object) -> Schedule:
    return a_schedule(trigger=None, cron=parse_cron(text), start=StartBy.CRON, zone=BERLIN, **changes)


def found(sight: Sight, gate: Gate) -> Finding:
    return next(finding for finding in explain(sight).findings if finding.gate is gate)


def test_every_gate_is_named_once_and_in_order() -> None:
    assert [finding.gate for finding in explain(a_sight()).findings] == list(Gate)


ALL_SET: dict[str, dict[str, Json]] = {"ready#2026-03-10": {"status": "done"}, "orders#2026-03-10": {"count": 1000}}


def test_with_every_gate_open_nothing_is_needed() -> None:
    explanation = explain(a_sight(sensors=ALL_SET))

    assert {finding.passage for finding in explanation.findings} == {Passage.OPEN}
    assert explanation.needed == ()
    assert explanation.summary == "nothing stands in its way: a worker starts it as soon as it looks"


def test_the_summary_names_the_first_gate_that_is_closed_and_what_is_needed_covers_all() -> None:
    explanation = explain(a_sight(pause=Pause("moving house")))

    assert explanation.summary == "held back by pause: paused until someone resumes it: moving house"
    assert explanation.needed == (
        "resume the pipeline: `interlock resume orders`",
        'write ready.status = "done" for 2026-03-10',
        "write orders.count >= 1000 for 2026-03-10",
    )


# --- config -----------------------------------------------------------------------------------------------------------


def test_a_sound_configuration_is_named_by_its_version() -> None:
    finding = found(a_sight(), Gate.CONFIG)

    assert (finding.passage, finding.sentence) == (Passage.OPEN, "version v1")


def test_a_run_under_an_older_version_says_so() -> None:
    sight = a_sight(config=ConfigSeen(applied="v1", in_force="v2"), run=a_run())

    assert found(sight, Gate.CONFIG).sentence == "version v1, under which the run began; later runs begin under v2"


def test_a_bad_deployment_stops_nothing_and_is_told() -> None:
    finding = found(a_sight(config=ConfigSeen(applied="v1", in_force="v1", problems=("no rules",))), Gate.CONFIG)

    assert finding.passage is Passage.OPEN
    assert "what was deployed since cannot be used: no rules" in finding.sentence


def test_a_dry_run_never_runs() -> None:
    finding = found(a_sight(rules_pipeline(dry_run=True)), Gate.CONFIG)

    assert (finding.passage, finding.changes) == (Passage.CLOSED, ("set dryRun to false and push orders",))


def test_a_pipeline_without_a_job_has_nothing_to_run() -> None:
    pipeline = a_pipeline(schedule=a_schedule(trigger=READY))
    sight = a_sight(Pipeline(id=pipeline.id, schedules=pipeline.schedules, rules=pipeline.rules, job=None))

    assert found(sight, Gate.CONFIG).changes == ("add a job to orders and push it",)


def test_without_any_usable_configuration_nothing_else_can_be_told() -> None:
    explanation = explain_unusable(KEY, ("line 1: no pipeline",))

    assert [finding.passage for finding in explanation.findings] == [Passage.CLOSED] + [Passage.UNKNOWN] * 8
    assert explanation.needed == ("correct the file of orders and push it",)


# --- schedule ---------------------------------------------------------------------------------------------------------


def test_a_cron_time_to_come_is_waited_for() -> None:
    sight = a_sight(rules_pipeline(cron_schedule()), key=a_key("2026-03-11"))

    finding = found(sight, Gate.SCHEDULE)

    assert finding.passage is Passage.CLOSED
    assert finding.changes == ("wait until 2026-03-11 06:00 CET",)


def test_a_cron_time_that_passed_without_a_run_can_be_made_up_for() -> None:
    finding = found(a_sight(rules_pipeline(cron_schedule())), Gate.SCHEDULE)

    assert finding.passage is Passage.UNKNOWN
    assert "its time came at 2026-03-10 06:00 CET" in finding.sentence
    assert "next is 2026-03-11 at 2026-03-11 06:00 CET" in finding.sentence
    assert finding.changes == ("run `interlock rerun orders 2026-03-10 --schedule stream`",)


def test_a_period_that_cron_never_names_is_told_apart() -> None:
    sight = a_sight(rules_pipeline(cron_schedule("0 6 * * MON")), key=a_key("2026-03-11"))

    finding = found(sight, Gate.SCHEDULE)

    assert finding.passage is Passage.CLOSED
    assert "never names 2026-03-11; next is 2026-03-16" in finding.sentence


def test_data_may_start_a_run_at_any_time() -> None:
    expected = a_schedule(trigger=READY, cron=parse_cron("0 6 * * *"), zone=BERLIN)

    finding = found(a_sight(rules_pipeline(expected), key=a_key("2026-03-11")), Gate.SCHEDULE)

    assert finding.passage is Passage.OPEN
    assert finding.sentence.startswith("sensor ready starts it; expected at 2026-03-11 06:00 CET")


def test_a_schedule_that_both_start_names_both() -> None:
    both = a_schedule(trigger=READY, cron=parse_cron("0 6 * * *"), start=StartBy.BOTH)

    sentence = found(a_sight(rules_pipeline(both)), Gate.SCHEDULE).sentence

    assert sentence.startswith("sensor ready starts it, and so does cron '0 6 * * *' in UTC")


def test_what_nothing_starts_must_be_asked_for() -> None:
    listed = a_schedule(trigger=None, include_dates=(date(2026, 3, 10),))

    finding = found(a_sight(rules_pipeline(listed)), Gate.SCHEDULE)

    assert (finding.passage, len(finding.changes)) == (Passage.CLOSED, 1)


def test_a_run_that_exists_needs_its_schedule_no_more() -> None:
    sight = a_sight(rules_pipeline(cron_schedule()), key=a_key("2026-03-11"), run=a_run())

    assert found(sight, Gate.SCHEDULE).passage is Passage.OPEN


@pytest.mark.parametrize(("days", "passage"), [(393, Passage.OPEN), (394, Passage.CLOSED)])
def test_a_period_whose_record_may_be_gone_is_refused(days: int, passage: Passage) -> None:
    period = (NOON - timedelta(days=days)).date().isoformat()

    assert found(a_sight(key=a_key(period), now=datetime(2026, 3, 10, tzinfo=UTC)), Gate.SCHEDULE).passage is passage


# --- calendar and pause -----------------------------------------------------------------------------------------------


def test_an_excluded_date_names_its_reason_and_the_next_date_that_runs() -> None:
    weekends = a_schedule(trigger=READY, exclusion=Exclusion(weekends=True))

    finding = found(a_sight(rules_pipeline(weekends), key=a_key("2026-03-14")), Gate.CALENDAR)

    assert finding.sentence == "2026-03-14 is excluded: Saturday; weekends are excluded"
    assert finding.changes == (
        "take 2026-03-14 out of the exclusions and push, or take 2026-03-16, the next date that runs",
    )


def test_a_schedule_that_excludes_everything_has_no_next_date() -> None:
    never = a_schedule(trigger=READY, exclusion=Exclusion(weekdays=frozenset(range(7))))

    assert found(a_sight(rules_pipeline(never)), Gate.CALENDAR).changes == (
        "take 2026-03-10 out of the exclusions and push",
    )


def test_a_pause_with_an_end_can_be_waited_for() -> None:
    finding = found(a_sight(pause=Pause("upgrade", NOON + HOUR)), Gate.PAUSE)

    assert finding.sentence == "paused until 2026-03-10 13:00 UTC: upgrade"
    assert finding.changes == ("resume the pipeline: `interlock resume orders`, or wait until 2026-03-10 13:00 UTC",)


@pytest.mark.parametrize("pause", [None, Pause("upgrade", NOON)])
def test_without_a_pause_or_after_its_end_the_way_is_free(pause: Pause | None) -> None:
    assert found(a_sight(pause=pause), Gate.PAUSE).passage is Passage.OPEN


# --- trigger ----------------------------------------------------------------------------------------------------------


def test_a_trigger_that_does_not_hold_shows_value_seen_and_wanted() -> None:
    finding = found(a_sight(sensors={"ready": {"status": "busy"}}), Gate.TRIGGER)

    [condition] = finding.conditions
    assert (finding.passage, finding.sentence) == (
        Passage.CLOSED,
        'ready.status is "busy", which is not equal to "done"',
    )
    assert (condition.seen, condition.wanted, condition.sensor) == ("busy", 'equal to "done"', "ready")


@pytest.mark.parametrize(
    ("updated", "changed_at"),
    [
        ("2026-03-10T11:00:00Z", NOON - HOUR),
        (1773140400, NOON - HOUR),
        (1773140400000, NOON - HOUR),
        ("1773140400", NOON - HOUR),
        ("yesterday", None),
        (True, None),
        (-1, None),
        (10**40, None),
    ],
)
def test_when_a_sensor_last_changed_is_told_as_far_as_its_producer_says(
    updated: Json, changed_at: datetime | None
) -> None:
    [condition] = found(a_sight(sensors={"ready": {"updatedAt": updated}}), Gate.TRIGGER).conditions

    assert condition.changed_at == changed_at


def test_a_plain_sensor_that_speaks_of_another_day_is_no_signal() -> None:
    finding = found(a_sight(sensors={"ready": {"status": "done", "date": "2026-03-09"}}), Gate.TRIGGER)

    assert finding.sentence == "ready says so, but speaks of 2026-03-09"
    assert finding.changes == ("write sensor ready#2026-03-10",)


def test_an_undated_sensor_speaks_of_today() -> None:
    assert found(a_sight(sensors={"ready": {"status": "done"}}), Gate.TRIGGER).passage is Passage.OPEN


def test_an_undated_sensor_counts_once() -> None:
    taken = Consumed(Sensor("ready", {"status": "done"}).content_hash, a_key("2026-03-09").period)

    finding = found(a_sight(sensors={"ready": {"status": "done"}}, consumed=taken), Gate.TRIGGER)

    assert finding.passage is Passage.CLOSED
    assert "was taken as the signal of 2026-03-09 already, and counts once" in finding.sentence


@pytest.mark.parametrize(
    ("undated", "data", "period"),
    [
        (Undated.DAILY, {"status": "done"}, "2026-03-09"),
        (Undated.ONCE, {"status": "done", "n": 2}, "2026-03-09"),
        (Undated.ONCE, {"status": "done"}, "2026-03-10"),
    ],
)
def test_an_undated_sensor_counts_again_where_it_may_or_when_it_changed(
    undated: Undated, data: dict[str, Json], period: str
) -> None:
    schedule = a_schedule(trigger=Trigger(rule=READY.rule, undated=undated))
    taken = Consumed(Sensor("ready", {"status": "done"}).content_hash, a_key(period).period)

    sight = a_sight(rules_pipeline(schedule), sensors={"ready": data}, consumed=taken)

    assert found(sight, Gate.TRIGGER).passage is Passage.OPEN


def test_which_sensor_a_prefix_means_cannot_be_told_by_exact_keys() -> None:
    prefix = a_schedule(trigger=Trigger(rule=READY.rule, match=Match.PREFIX))

    finding = found(a_sight(rules_pipeline(prefix)), Gate.TRIGGER)

    assert finding.passage is Passage.UNKNOWN
    assert "`interlock sensor list orders --prefix ready`" in finding.sentence


def test_data_that_was_given_up_is_told_with_the_time() -> None:
    schedule = a_schedule(trigger=Trigger(rule=READY.rule, deadline=Deadline(9, 0)), cron=parse_cron("0 6 * * *"))

    finding = found(a_sight(rules_pipeline(schedule)), Gate.TRIGGER)

    assert finding.sentence == "ready did not come by 2026-03-10 09:00 UTC, when it was given up"


@pytest.mark.parametrize("sight", [a_sight(run=a_run()), a_sight(rules_pipeline(cron_schedule()))])
def test_a_trigger_is_not_needed_once_the_run_exists_or_where_cron_starts_it(sight: Sight) -> None:
    assert found(sight, Gate.TRIGGER).passage is Passage.OPEN


# --- run --------------------------------------------------------------------------------------------------------------

FOREIGN = ForeignRun(key=KEY, status="RUNNING", expires_at=NOON + HOUR)
REHEARSAL = DryRun(key=KEY, config_hash="v1", since=NOON, window_ends_at=NOON + HOUR)


def rehearsal(state: DryState, reason: str = "") -> DryRun:
    return DryRun(key=KEY, config_hash="v1", since=NOON, window_ends_at=NOON + HOUR, state=state, reason=reason)


@pytest.mark.parametrize(
    ("run", "passage", "sentence"),
    [
        (None, Passage.OPEN, "there is no run yet"),
        (
            a_run(),
            Passage.OPEN,
            "attempt 1 waits for its rules since 2026-03-10 12:00 UTC, until 2026-03-10 13:00 UTC",
        ),
        (a_run(State.TRIGGERING), Passage.OPEN, "attempt 1: the job is being started since 2026-03-10 12:00 UTC"),
        (
            a_run(State.TRIGGERING, start_step=StartStep.REFUSED, start_failures=2, start_after=NOON + MINUTE),
            Passage.OPEN,
            "attempt 1: the job was refused 2 times; it is tried again at 2026-03-10 12:01 UTC",
        ),
        (
            a_run(State.TRIGGERING, start_step=StartStep.REFUSED, start_failures=2, starts_unanswered=1),
            Passage.OPEN,
            "attempt 1: the job may be running: of 2 tries to start it, 1 got no answer",
        ),
        (
            a_run(State.TRIGGERING, start_step=StartStep.REFUSED, start_failures=1, reason="no such job"),
            Passage.OPEN,
            "attempt 1: the job was refused once; the last answer: no such job",
        ),
        (
            a_run(State.TRIGGERING, start_step=StartStep.UNANSWERED, reason="no answer in 30 s"),
            Passage.OPEN,
            (
                "attempt 1: the job may have been started at 2026-03-10 12:00 UTC; "
                "the target is asked whether it has it; the last answer: no answer in 30 s"
            ),
        ),
        (
            a_run(State.POLLING, attempt=3),
            Passage.OPEN,
            "attempt 3: the job runs since 2026-03-10 12:00 UTC, and has until 2026-03-10 13:00 UTC",
        ),
        (
            a_run(State.STOPPING),
            Passage.CLOSED,
            "attempt 1 is being stopped (until 2026-03-10 12:10 UTC): the poll window is over; then it is tried again",
        ),
        (a_run(State.COMPLETED), Passage.CLOSED, "attempt 1 completed at 2026-03-10 12:00 UTC"),
        (
            a_run(State.FAILED_FINAL),
            Passage.CLOSED,
            "attempt 1 ended as failed at 2026-03-10 12:00 UTC: out of memory",
        ),
        (
            a_run(State.FAILED_FINAL, outcome=Outcome.CANCELLED, reason="not needed"),
            Passage.CLOSED,
            "attempt 1 ended as cancelled at 2026-03-10 12:00 UTC: not needed",
        ),
        (FOREIGN, Passage.CLOSED, "another system is running it, at most until 2026-03-10 13:00 UTC"),
        (
            ForeignRun(key=KEY, status="RUNNING", expires_at=NOON - HOUR),
            Passage.CLOSED,
            "another system's claim ended at 2026-03-10 11:00 UTC",
        ),
        (
            ForeignRun(key=KEY, status="RUNNING"),
            Passage.CLOSED,
            "another system is running it, without an end to its claim",
        ),
        (ForeignRun(key=KEY, status="COMPLETED"), Passage.CLOSED, "another system ended it as COMPLETED"),
        (
            rehearsal(DryState.EVALUATING),
            Passage.OPEN,
            "the rehearsal waits for its rules since 2026-03-10 12:00 UTC, until 2026-03-10 13:00 UTC",
        ),
        (
            rehearsal(DryState.WOULD_TRIGGER),
            Passage.OPEN,
            "the job would have been started at 2026-03-10 12:00 UTC",
        ),
        (
            rehearsal(DryState.EXHAUSTED, "too few orders"),
            Passage.OPEN,
            "the rehearsal was given up at 2026-03-10 12:00 UTC: too few orders",
        ),
    ],
)
def test_the_run_says_where_it_stands(run: AnyRun | None, passage: Passage, sentence: str) -> None:
    finding = found(a_sight(run=run), Gate.RUN)

    assert (finding.passage, finding.sentence) == (passage, sentence)


@pytest.mark.parametrize("after", AfterStop)
def test_a_run_that_is_stopped_says_what_comes_after(after: AfterStop) -> None:
    sentences = {
        found(a_sight(run=a_run(State.STOPPING, after_stop=other)), Gate.RUN).sentence
        for other in AfterStop
        if other is not after
    }

    assert found(a_sight(run=a_run(State.STOPPING, after_stop=after)), Gate.RUN).sentence not in sentences


@pytest.mark.parametrize("state", [State.TRIGGERING, State.POLLING, State.STOPPING])
def test_of_a_run_under_way_nothing_is_needed(state: State) -> None:
    explanation = explain(a_sight(run=a_run(state)))

    assert explanation.needed == ()
    assert explanation.summary.startswith("attempt 1")


def test_an_ended_run_is_rerun_and_its_rules_must_hold_again() -> None:
    explanation = explain(a_sight(run=a_run(State.COMPLETED)))

    assert explanation.needed == (
        "run `interlock rerun orders 2026-03-10 --schedule stream`",
        "write orders.count >= 1000 for 2026-03-10",
    )


# --- rules ------------------------------------------------------------------------------------------------------------


def test_every_rule_shows_the_value_seen_and_wanted() -> None:
    finding = found(a_sight(sensors={"orders#2026-03-10": {"count": 950}}), Gate.RULES)

    [condition] = finding.conditions
    assert finding.passage is Passage.CLOSED
    assert (condition.subject, condition.seen, condition.wanted) == ("orders.count", 950, "at least 1000")
    assert (condition.sensor, condition.passed) == ("orders#2026-03-10", False)


def test_rules_inside_groups_are_shown_too() -> None:
    inner = Group(mode=Mode.ANY, members=(COUNT, Rule(key="fx", check=Check.EXISTS)))
    pipeline = a_pipeline(schedule=a_schedule(trigger=READY), rules=Group(members=(READY.rule, inner)))

    subjects = [condition.subject for condition in found(a_sight(pipeline), Gate.RULES).conditions]

    assert subjects == ["ready.status", "orders.count", "fx"]


def test_of_a_running_job_the_rules_are_shown_as_they_are_now_and_hold_nothing_back() -> None:
    started_on = {"orders": Sensor("orders", {"count": 1000}).content_hash}
    sight = a_sight(run=a_run(State.POLLING, started_on=started_on), sensors={"orders": {"count": 5}})

    finding = found(sight, Gate.RULES)

    assert finding.passage is Passage.OPEN
    assert finding.sentence.startswith("they held when the job was started; now 0 of 1 conditions hold")
    assert [condition.is_news for condition in finding.conditions] == [True]


@pytest.mark.parametrize(("count", "is_news"), [(1000, False), (1200, True)])
def test_a_sensor_that_changed_since_the_job_was_started_is_news(count: int, *, is_news: bool) -> None:
    started_on = {"orders": Sensor("orders", {"count": 1000}).content_hash}
    sight = a_sight(run=a_run(State.COMPLETED, started_on=started_on), sensors={"orders": {"count": count}})

    [condition] = found(sight, Gate.RULES).conditions

    assert condition.is_news is is_news


# --- budgets ----------------------------------------------------------------------------------------------------------


def test_budgets_say_what_is_used_of_each() -> None:
    pipeline = rules_pipeline(job={"max_retries": 2, "max_manual_reruns": 3})
    run = a_run(spent=Spent(transient=1, manual=2))

    assert found(a_sight(pipeline, run=run), Gate.BUDGETS).sentence == (
        "used: 1 of 2 retries, 0 of 1 code retries, 0 of 1 drift reruns, 2 of 3 manual reruns"
    )


def test_with_the_manual_budget_used_up_a_replay_is_the_way() -> None:
    run = a_run(State.COMPLETED, spent=Spent(manual=1))

    explanation = explain(a_sight(run=run, sensors={"orders": {"count": 1000}}))

    budgets = next(finding for finding in explanation.findings if finding.gate is Gate.BUDGETS)
    assert budgets.passage is Passage.CLOSED
    assert explanation.needed == (
        "run `interlock replay orders 2026-03-10 2026-03-10 --schedule stream`, outside the budget",
    )


def test_a_request_that_waits_for_its_answer_is_mentioned_and_an_answered_one_is_not() -> None:
    request = RerunRequest(reason="fixed", requested_at="2026-03-10T11:59:00Z", id="a1")
    waiting = a_sight(request=request, run=a_run(State.COMPLETED))
    answered = a_sight(request=request, run=a_run(State.COMPLETED, handled=(request.identity,)))

    assert "asked for at 2026-03-10T11:59:00Z (fixed) is not answered yet" in found(waiting, Gate.BUDGETS).sentence
    assert "not answered" not in found(answered, Gate.BUDGETS).sentence


# --- sla --------------------------------------------------------------------------------------------------------------

DAILY = a_schedule(trigger=READY, sla=Sla(deadline=Deadline(9, 0)))
RELATIVE = a_schedule(trigger=READY, sla=Sla(max_duration=HOUR))


@pytest.mark.parametrize(
    ("sight", "sentence"),
    [
        (a_sight(), "it has no deadline"),
        (a_sight(rules_pipeline(DAILY)), "due by 2026-03-10 09:00 UTC; not watched yet"),
        (a_sight(rules_pipeline(RELATIVE)), "its deadline counts from its first signal"),
        (a_sight(watch=a_watch()), "due by 2026-03-10 14:00 UTC"),
        (a_sight(watch=a_watch(warned_at=NOON)), "due by 2026-03-10 14:00 UTC; the warning was given"),
        (a_sight(watch=a_watch(breach_at=NOON)), "overdue since 2026-03-10 12:00 UTC"),
        (
            a_sight(watch=a_watch(verdict=Verdict.MET)),
            "met: due by 2026-03-10 14:00 UTC, judged at 2026-03-10 12:00 UTC",
        ),
        (
            a_sight(watch=a_watch(verdict=Verdict.BREACHED, reason="too late")),
            "missed: due by 2026-03-10 14:00 UTC: too late",
        ),
        (
            a_sight(watch=a_watch(verdict=Verdict.WAIVED, reason="no need")),
            "waived at 2026-03-10 12:00 UTC: no need",
        ),
    ],
)
def test_the_deadline_is_told_and_holds_nothing_back(sight: Sight, sentence: str) -> None:
    finding = found(sight, Gate.SLA)

    assert (finding.passage, finding.sentence) == (Passage.OPEN, sentence)


# --- over all gates ---------------------------------------------------------------------------------------------------

RUNS: list[AnyRun | None] = [None, FOREIGN, REHEARSAL, *(a_run(state) for state in State)]
PIPELINES = [
    rules_pipeline(),
    rules_pipeline(cron_schedule()),
    rules_pipeline(a_schedule(trigger=None)),
    rules_pipeline(a_schedule(trigger=READY, exclusion=Exclusion(weekdays=frozenset(range(7))))),
    rules_pipeline(dry_run=True),
]


@pytest.mark.parametrize("pause", [None, Pause("upgrade"), Pause("upgrade", NOON + HOUR)])
@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("run", RUNS)
def test_whatever_is_closed_can_be_opened(run: Run | None, pipeline: Pipeline, pause: Pause | None) -> None:
    explanation: Explanation = explain(a_sight(pipeline, run=run, pause=pause, key=a_key("2026-03-11")))

    for finding in explanation.findings:
        assert bool(finding.changes) >= (finding.passage is Passage.CLOSED), finding
        assert not (finding.changes and finding.passage is Passage.OPEN), finding
        assert finding.sentence


def test_other_schedules_and_pipelines_are_named_by_their_own_names() -> None:
    key = RunKey(PipelineId("sales"), ScheduleId("cron"), KEY.period)

    assert (
        "interlock rerun sales 2026-03-10 --schedule cron"
        in explain(a_sight(key=key, run=a_run(State.COMPLETED))).needed[0]
    )
