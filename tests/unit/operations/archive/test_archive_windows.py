"""Windows of the archive: aligned, within a day, and read only once nothing more is expected in them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from worker.core.errors import ConfigError, Rejected
from worker.operations.archive.windows import ArchiveWindow, aligned, next_window
from worker.store.archive_url import FileArchive, S3Archive, parse_archive

MIDNIGHT = datetime(2026, 3, 3, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("start", "now", "size"),
    [
        (MIDNIGHT, MIDNIGHT + 16 * MINUTE, None),  # over, and its index may lag
        (MIDNIGHT, MIDNIGHT + 17 * MINUTE, "15m"),
        (MIDNIGHT, MIDNIGHT + HOUR + 2 * MINUTE, "1h"),
        (MIDNIGHT, MIDNIGHT + DAY + MINUTE, "1h"),
        (MIDNIGHT, MIDNIGHT + DAY + 2 * MINUTE, "1d"),
        (MIDNIGHT + 15 * MINUTE, MIDNIGHT + 9 * DAY, "15m"),
        (MIDNIGHT + HOUR, MIDNIGHT + 9 * DAY, "1h"),
        (MIDNIGHT + DAY, MIDNIGHT, None),  # the clock was set back
    ],
)
def test_the_longest_aligned_window_that_is_over_comes_next(start: datetime, now: datetime, size: str | None) -> None:
    window = next_window(start, now)

    assert (window and window.size) == size


def test_windows_follow_each_other_without_a_gap_and_none_spans_two_days() -> None:
    now, start = MIDNIGHT + 3 * DAY + 5 * HOUR, MIDNIGHT - 7 * HOUR - 30 * MINUTE
    windows: list[ArchiveWindow] = []
    while (window := next_window(start, now)) is not None:
        windows.append(window)
        start = window.end

    assert [each.start for each in windows[1:]] == [each.end for each in windows[:-1]]
    assert all(each.start.date() == each.last.date() for each in windows)
    assert now - windows[-1].end < 17 * MINUTE
    assert len({(each.start.date(), each.name) for each in windows}) == len(windows)


def test_progress_that_no_window_begins_at_is_rejected() -> None:
    with pytest.raises(Rejected, match="no window begins"):
        next_window(MIDNIGHT + MINUTE, MIDNIGHT + DAY)


def test_a_time_is_aligned_in_utc() -> None:
    assert aligned(datetime.fromisoformat("2026-03-03T01:20:59+02:00")) == MIDNIGHT - 45 * MINUTE


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", None),
        ("s3://history/interlock/prod/", S3Archive("history", "interlock/prod/")),
        ("s3://history", S3Archive("history", "")),
        ("file:/var/archive", FileArchive(Path("/var/archive"))),
        ("file:///var/archive", FileArchive(Path("/var/archive"))),
    ],
)
def test_an_archive_is_a_bucket_or_a_directory(text: str, place: S3Archive | FileArchive | None) -> None:
    assert parse_archive("INTERLOCK_ARCHIVE", text) == place


@pytest.mark.parametrize("text", ["history", "s3://", "s3://No_Bucket/x", "s3://history/../x", "file:", "gs://x/y"])
def test_any_other_archive_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="use s3://BUCKET/PREFIX or file:DIRECTORY"):
        parse_archive("INTERLOCK_ARCHIVE", text)
