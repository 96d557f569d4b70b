"""`interlock run --watch`: what becomes of files that change, appear, break and go."""

import asyncio
import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.support.builders.command_line import TODAY, interlock
from tests.support.builders.pushed_files import SOUND, URL, config_log, stored_text, write
from tests.support.clock.manual import ManualClock
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from worker.cli.commands.push import PushStatus
from worker.cli.run.watch import PipelineWatch, stamps_before_push
from worker.cli.run.watch_report import PROBLEMS_SHOWN_MAX, LoggedWatch, ShownWatch
from worker.cli.terminal.console import OutputStream, Screen
from worker.cli.terminal.files import Sources
from worker.cli.terminal.store_session import StoreAccess
from worker.config.load import Problem, ProblemSeverity, load_directory
from worker.core.errors import RetryLater, WorkerError
from worker.core.model.pipeline import PipelineId
from worker.runtime.clock import Clock

SOURCES = Sources(paths=[Path("files")], today=TODAY.date())
OTHER = SOUND.replace("0 6 * * *", "0 7 * * *")


class Reports:
    """What was reported, in short."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def reloaded(self, pipeline: PipelineId, status: PushStatus, version: str, file: str) -> None:
        assert len(version) == 64
        self.said.append(f"{pipeline} {status} {file}")

    def rejected(self, file: str, problems: Sequence[Problem]) -> None:
        self.said.append(f"{file} rejected {problems[0].line}" if problems else f"{file} fixed")

    def gone(self, pipeline: PipelineId, file: str) -> None:
        self.said.append(f"{pipeline} gone {file}")

    def failed(self, reason: str) -> None:
        self.said.append(f"failed: {reason}")


class Watched:
    """A watch after the first push."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.reports = Reports()
        access = StoreAccess(url=URL, clock=clock or ManualClock(TODAY))
        self.watch = PipelineWatch(access, SOURCES, stamps_before_push(SOURCES), self.reports)
        self.watch.note_pushed(load_directory(SOURCES.paths, today=SOURCES.today))

    def look(self, times: int = 2) -> list[str]:
        """Look at the files, as often as it takes for a change to settle; return what was said since the last call."""

        async def looks() -> None:
            for _ in range(times):
                await self.watch.look()

        asyncio.run(looks())
        said, self.reports.said = self.reports.said, []
        return said


@pytest.fixture
def watched(here: Path) -> Watched:
    assert interlock("store", "init").exit_code == 0
    write("orders")
    write("items")
    assert interlock("pipelines", "push", "files", "--yes").exit_code == 0
    return Watched()


def deployed(name: str) -> bool:
    return stored_text(name) is not None


def test_files_that_do_not_change_are_left_alone(watched: Watched) -> None:
    assert watched.look() == []


def test_a_changed_file_and_an_added_one_are_in_force_and_workers_are_notified(watched: Watched) -> None:
    before = len(config_log())
    write("orders", OTHER)
    write("fresh")

    assert watched.look() == ["fresh new files/fresh.yaml", "orders changed files/orders.yaml"]
    assert "0 7 * * *" in (stored_text("orders") or "")
    assert deployed("fresh")
    assert len(config_log()) == before + 2
    assert watched.look() == []


def test_a_file_that_is_still_being_written_is_not_taken(watched: Watched) -> None:
    write("orders", OTHER)

    assert watched.look(times=1) == []
    assert "0 6 * * *" in (stored_text("orders") or "")


def test_a_change_of_comments_alone_changes_nothing(watched: Watched) -> None:
    before = len(config_log())
    write("orders", f"# a comment\n{SOUND}")

    assert watched.look() == []
    assert len(config_log()) == before


def test_what_somebody_else_pushed_is_not_undone_by_a_change_of_another_file(watched: Watched) -> None:
    Path("other").mkdir()
    Path("other/orders.yaml").write_text(OTHER.replace("NAME", "orders"))
    assert interlock("pipelines", "push", "other", "--yes").exit_code == 0
    write("items", OTHER)

    assert watched.look() == ["items changed files/items.yaml"]
    assert "0 7 * * *" in (stored_text("orders") or "")


def test_a_file_with_errors_is_reported_once_and_the_old_version_stays(watched: Watched) -> None:
    write("orders", SOUND.replace("cron:", "crone:"))
    write("items", OTHER)

    assert watched.look() == ["files/orders.yaml rejected 2", "items changed files/items.yaml"]
    assert "0 6 * * *" in (stored_text("orders") or "")
    assert watched.look() == []

    write("items", SOUND)
    assert watched.look() == ["items changed files/items.yaml"]  # the same errors are no news
    write("orders")
    assert watched.look() == ["files/orders.yaml fixed"]


def test_a_pipeline_too_large_for_a_row_is_rejected_like_any_error(watched: Watched) -> None:
    write("orders", SOUND.replace("command: load", f"command: [load, '{'x' * 390_000}']"))

    assert watched.look() == ["files/orders.yaml rejected 1"]
    assert "xxx" not in (stored_text("orders") or "")


def test_a_deleted_file_removes_nothing(watched: Watched) -> None:
    Path("files/orders.yaml").unlink()

    assert watched.look() == ["orders gone files/orders.yaml"]
    assert deployed("orders")
    assert watched.look() == []

    write("orders")
    assert watched.look() == ["orders unchanged files/orders.yaml"]


def test_a_file_with_errors_that_is_deleted_is_gone_and_not_fixed(watched: Watched) -> None:
    write("orders", "pipeline: [")
    watched.look()
    Path("files/orders.yaml").unlink()

    assert watched.look() == ["orders gone files/orders.yaml"]


def test_a_renamed_file_is_not_gone(watched: Watched) -> None:
    Path("files/orders.yaml").rename("files/all-orders.yaml")

    assert watched.look() == []


def test_a_pipeline_whose_file_holds_another_one_now_stays(watched: Watched) -> None:
    write("orders", SOUND.replace("NAME", "purchases"))

    assert watched.look() == ["orders gone files/orders.yaml", "purchases new files/orders.yaml"]
    assert deployed("orders")


def test_of_two_files_with_one_id_none_is_followed(watched: Watched) -> None:
    Path("files/a-copy.yaml").write_text(OTHER.replace("NAME", "orders"))

    assert watched.look() == ["files/orders.yaml rejected 1"]
    assert "0 6 * * *" in (stored_text("orders") or "")

    Path("files/orders.yaml").unlink()
    assert watched.look() == ["orders changed files/a-copy.yaml"]


def test_a_changed_calendar_is_in_force_in_the_pipelines_that_name_it(watched: Watched) -> None:
    calendar = Path("files/calendars/days.yaml")
    calendar.parent.mkdir()
    calendar.write_text("name: days\ndates: ['2027-04-01']\n")
    write("orders", SOUND.replace('cron: "0 6 * * *"', 'cron: "0 6 * * *", exclude: {calendar: days}'))
    assert watched.look() == ["orders changed files/orders.yaml"]

    calendar.write_text("name: days\ndates: ['2027-04-02']\n")
    assert watched.look() == ["orders changed files/orders.yaml"]
    assert "2027-04-02" in (stored_text("orders") or "")


def test_a_folder_that_is_gone_takes_nothing_with_it(watched: Watched) -> None:
    Path("files").rename("away")

    with pytest.raises(RetryLater, match="files is gone"):
        watched.look(times=1)
    Path("away").rename("files")
    assert watched.look() == []


@on_virtual_time
async def test_what_goes_wrong_is_said_once_and_tried_again(here: Path) -> None:
    clock, folder = VirtualClock(), here / "files"
    folder.mkdir()
    watched = Watched(clock)
    watching = asyncio.create_task(watched.watch.run())

    folder.rename(here / "away")
    await clock.sleep(60)
    assert watched.reports.said == ["failed: the files cannot be listed: files is gone"]
    (here / "away").rename(folder)
    await clock.sleep(60)
    assert not watching.done()
    folder.rename(here / "away")
    await clock.sleep(60)

    assert len(watched.reports.said) == 2
    watching.cancel()


def test_a_store_that_does_not_answer_is_tried_again(watched: Watched) -> None:
    write("orders", OTHER)
    Path("interlock.db").rename("away.db")
    with pytest.raises(WorkerError):
        watched.look()

    Path("away.db").rename("interlock.db")

    assert watched.look(times=1) == ["orders changed files/orders.yaml"]


def test_watching_needs_files_to_watch(here: Path) -> None:
    result = interlock("run", "--watch")

    assert result.exit_code == 2
    assert "add --pipelines DIR" in result.stderr


# --- how it is said ---------------------------------------------------------------------------------------------------


def problems(count: int) -> list[Problem]:
    return [
        Problem(
            file="files/orders.yaml",
            line=line + 1,
            column=3,
            path="schedule",
            severity=ProblemSeverity.ERROR,
            message=f"unknown key {line}\x1b[2J",
            hint="remove it",
        )
        for line in range(count)
    ]


def test_people_read_what_happened_where_and_what_to_do() -> None:
    out = io.StringIO()
    report = ShownWatch(Screen(out=OutputStream(out), err=OutputStream(out)), ManualClock())

    report.rejected("files/orders.yaml", problems(PROBLEMS_SHOWN_MAX + 2))
    report.gone(PipelineId("orders"), "files/orders.yaml")
    report.reloaded(PipelineId("orders"), PushStatus.CHANGED, "2909f9050703", "files/orders.yaml")

    text = out.getvalue()
    assert "files/orders.yaml was not reloaded: 12 errors; the deployed version stays in force" in text
    assert "files/orders.yaml:1:3 schedule: unknown key 0\\x1b[2J\n    remove it" in text
    assert f"unknown key {PROBLEMS_SHOWN_MAX}" not in text
    assert "and 2 more: `interlock validate files/orders.yaml` shows them all" in text
    assert "orders  files/orders.yaml does not hold it any more; it stays deployed: `interlock pipelines remove" in text
    assert "orders  reloaded from files/orders.yaml (version 2909f9050703); active runs keep the version" in text


def test_the_log_gets_events() -> None:
    report = LoggedWatch()

    with capture_logs() as logged:
        report.rejected("files/orders.yaml", problems(PROBLEMS_SHOWN_MAX + 2))
        report.rejected("files/orders.yaml", ())
        report.gone(PipelineId("orders"), "files/orders.yaml")
        report.reloaded(PipelineId("orders"), PushStatus.NEW, "2909f9050703", "files/orders.yaml")
        report.failed("the store does not answer")

    assert [(line["event"], line["log_level"]) for line in logged] == [
        ("pipeline.not_reloaded", "warning"),
        ("pipeline.file_fixed", "info"),
        ("pipeline.file_gone", "warning"),
        ("pipeline.reloaded", "info"),
        ("pipeline.watch_failed", "warning"),
    ]
    assert (logged[0]["errors"], len(logged[0]["problems"])) == (12, PROBLEMS_SHOWN_MAX)
