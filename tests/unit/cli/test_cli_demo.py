"""The demo's directory, and how it waits; `test_cli_demo_play.py` plays the whole of it."""

import re
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.builders.command_line import interlock
from tests.support.clock.manual import NOON, ManualClock
from worker.cli.demo.acts import PIPELINES
from worker.cli.demo.demo import first_of
from worker.cli.demo.folder import MARK, NAME, SCRIPT, FolderRequest, make_folder
from worker.cli.demo.past_runs import DAILY
from worker.cli.demo.stage import PATIENCE_S, PLAY_MAX_S, ExpectedEvent, NotInTime, Stage, run_of
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_session import StoreAccess
from worker.config.load import load_directory
from worker.core.errors import ConfigError
from worker.core.model.events import Event, EventType
from worker.store.repos.events import Events
from worker.store.table import Tables

NOBODY = Consent(False, None)
AGREED = Consent(True, None)
DAY = "2026-03-02"
COMPLETED = ExpectedEvent(pipeline="orders", period=DAY, type=EventType.JOB_COMPLETED)


def folder(directory: Path | None = None, consent: Consent = NOBODY) -> Path | None:
    return make_folder(Screen(), FolderRequest(directory=directory, consent=consent))


def answering(answer: str) -> Consent:
    return Consent(False, lambda _: answer)


def test_its_pipelines_have_neither_errors_nor_warnings() -> None:
    found = load_directory([SCRIPT / "pipelines"], today=NOON.date())

    assert found.problems == ()
    made_up = {each.id for each in DAILY} - set(PIPELINES)
    assert sorted(pipeline.id for pipeline in found.pipelines) == sorted({*PIPELINES, *made_up})


# --- the directory ----------------------------------------------------------------------------------------------------


def test_a_new_directory_gets_the_pipelines_and_the_jobs(tmp_path: Path) -> None:
    wanted = tmp_path / "deep" / "demo"

    assert folder(wanted) == wanted
    assert (wanted / "pipelines" / "gold-orders.yaml").is_file()
    assert (wanted / "jobs" / "gold.py").is_file()


def test_where_a_person_can_be_asked_it_is_always_the_same_directory(here: Path) -> None:
    assert folder(consent=answering("n")) == here / NAME
    assert folder(consent=answering("y")) == here / NAME


def test_where_nobody_can_be_asked_each_demo_gets_a_directory_of_its_own(here: Path) -> None:
    made = {folder(), folder()}

    assert len(made) == 2
    assert all(path and path.parent == here and path.name.startswith(f"{NAME}-") for path in made)


@pytest.mark.parametrize("consent", [NOBODY, AGREED])
def test_a_directory_of_others_is_left_alone_whatever_was_agreed_to(tmp_path: Path, consent: Consent) -> None:
    (tmp_path / "interlock.db").write_text("precious")

    with pytest.raises(ConfigError, match="not a demo's directory"):
        folder(tmp_path, consent)

    assert [path.name for path in tmp_path.iterdir()] == ["interlock.db"]


def test_an_earlier_demo_is_replaced_once_that_is_agreed_to_and_what_others_put_there_stays(tmp_path: Path) -> None:
    folder(tmp_path / "demo")
    for name in ("interlock.db", "interlock.db-wal", "mine.txt"):
        (tmp_path / "demo" / name).write_text("old")

    folder(tmp_path / "demo", AGREED)

    names = {path.name for path in (tmp_path / "demo").iterdir()}
    assert names == {MARK, "pipelines", "jobs", "mine.txt"}


def test_an_earlier_demo_stays_if_the_person_says_no(tmp_path: Path) -> None:
    folder(tmp_path / "demo")
    (tmp_path / "demo" / "interlock.db").write_text("old")

    assert folder(tmp_path / "demo", answering("n")) is None
    assert (tmp_path / "demo" / "interlock.db").read_text() == "old"


def test_an_earlier_demo_stays_if_there_is_nobody_to_ask(tmp_path: Path) -> None:
    folder(tmp_path / "demo")

    result = interlock("demo", "--dir", tmp_path / "demo")

    assert result.exit_code == 2
    assert "holds an earlier demo" in result.stderr
    assert "--yes" in result.stderr


def test_a_directory_that_cannot_be_made_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="name another with --dir"):
        folder(tmp_path / "file" / "demo")


def test_without_the_demos_files_it_is_said_that_the_installation_is_incomplete(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the installation is incomplete; install Interlock again"):
        make_folder(Screen(), FolderRequest(directory=tmp_path / "demo", consent=NOBODY), tmp_path / "nowhere")

    assert not (tmp_path / "demo").exists()


def test_the_help_page_says_where_it_plays_and_how_it_exits() -> None:
    page = re.sub(r"[\s│╭╮╰╯─]+", " ", interlock("demo", "--help").stdout)

    assert "./interlock-demo" in page
    assert "Exit codes: 0 " in page


# --- the wait ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def access(tmp_path: Path) -> StoreAccess:
    found = StoreAccess(url=f"sqlite:///{tmp_path}/interlock.db", clock=ManualClock())
    await found.admin.init(may_create=True)
    return found


@pytest.fixture
async def tables(access: StoreAccess) -> AsyncGenerator[Tables]:
    async with access.tables() as opened:
        yield opened


@pytest.fixture
def stage(access: StoreAccess, tables: Tables) -> Stage:
    return Stage(Screen(), access, tables, ["orders", "customers"])


def an_event(number: int, event_type: EventType = EventType.JOB_COMPLETED) -> Event:
    at = NOON + timedelta(milliseconds=number // 10)
    message = f"orders/stream/{DAY} completed in attempt {number}"
    return Event(
        id=f"{number:04d}", type=event_type, at=at, pipeline="orders", schedule="stream", period=DAY, message=message
    )


async def test_what_has_come_is_shown_once_and_waited_for_no_longer(
    stage: Stage, tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    await Events(tables).put_foreign(an_event(1))

    await stage.until(COMPLETED)
    await stage.until(COMPLETED)

    assert capsys.readouterr().out.count("completed in attempt 1") == 1
    assert stage.seen_after_s(COMPLETED) == stage.elapsed_s == 0


async def test_what_does_not_come_ends_the_wait_and_is_named(stage: Stage, tables: Tables) -> None:
    await Events(tables).put_foreign(an_event(1))

    with pytest.raises(NotInTime, match=rf"JOB_COMPLETED of orders {DAY} \(number 2\) did not happen in time"):
        await stage.until(ExpectedEvent(pipeline="orders", period=DAY, type=EventType.JOB_COMPLETED, times=2))

    assert PATIENCE_S <= stage.elapsed_s < PATIENCE_S + 1


async def test_all_waits_together_are_bounded_too(stage: Stage, access: StoreAccess) -> None:
    await access.clock.sleep(PLAY_MAX_S - 1)

    with pytest.raises(NotInTime):
        await stage.until(COMPLETED)

    assert PLAY_MAX_S <= stage.elapsed_s < PLAY_MAX_S + 1


async def test_events_of_one_decision_are_shown_in_the_order_of_a_life(
    stage: Stage, tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    await Events(tables).put_foreign(an_event(1, EventType.DRY_RUN_COMPLETED))
    await Events(tables).put_foreign(an_event(2, EventType.DRY_RUN_WOULD_TRIGGER))

    await stage.until(ExpectedEvent(pipeline="orders", period=DAY, type=EventType.DRY_RUN_COMPLETED))

    assert re.findall(r"DRY_RUN_\w+", capsys.readouterr().out) == ["DRY_RUN_WOULD_TRIGGER", "DRY_RUN_COMPLETED"]


async def test_without_a_worker_no_wait_goes_on_for_ever(stage: Stage) -> None:
    with pytest.raises(NotInTime, match="the worker's beginning"):
        await stage.until_heard()

    with pytest.raises(NotInTime, match=f"the beginning of orders/stream/{DAY}"):
        await stage.until_waiting(run_of("orders", DAY))


def test_of_an_end_in_groups_the_first_cause_is_told() -> None:
    cause = ConfigError("the store is gone; find it")
    group = BaseExceptionGroup("outer", [BaseExceptionGroup("inner", [cause]), NotInTime("something")])

    assert first_of(group) is cause
    assert first_of(cause) is cause
