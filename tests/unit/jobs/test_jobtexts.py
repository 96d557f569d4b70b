from tests.support.builders.values import a_key, a_run
from worker.jobs.templates import context_of, filled_in


def test_variables_are_filled_in_at_every_depth_and_nothing_else_changes() -> None:
    run = a_run(key=a_key("2026-03-10T07"), attempt=2)
    config = {
        "url": "https://example.org/${PIPELINE}/${DATE}",
        "body": {"hour": "${HOUR}", "days": ["${PAR_DAY}", "${PAR_HOUR}"], "rows": 5, "none": None},
        "secret": "${INTERLOCK_TOKEN}",
        "literal": "$${DATE}",
    }

    assert filled_in(config, run) == {
        "url": "https://example.org/orders/2026-03-10",
        "body": {"hour": "07", "days": ["20260310", "07"], "rows": 5, "none": None},
        "secret": "${INTERLOCK_TOKEN}",
        "literal": "${DATE}",
    }


def test_a_day_has_no_hour_to_fill_in() -> None:
    assert filled_in({"at": "${DATE}[${HOUR}]"}, a_run()) == {"at": "2026-03-10[]"}


def test_an_attempt_is_told_apart_by_its_number_and_its_run() -> None:
    config = {"name": "${RUN_ID}-${ATTEMPT}-${SCHEDULE}"}

    assert filled_in(config, a_run(attempt=3)) == {"name": "run-1-3-stream"}
    assert context_of(a_run(attempt=3)).attempt == 3
