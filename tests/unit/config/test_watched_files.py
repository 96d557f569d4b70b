"""When changed files may be read."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from worker.config.files import UnreadableFile
from worker.config.watched_files import SettledFiles, stamps_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "calendars").mkdir()
    (tmp_path / "a.yaml").write_text("a")
    return tmp_path


def test_only_files_that_are_loaded_count(folder: Path) -> None:
    (folder / "calendars" / "days.yml").write_text("days")
    (folder / ".a.yaml.swp").write_text("an editor's")
    (folder / "gone.yaml").symlink_to("nowhere")

    assert {path.name for path in stamps_of([folder])} == {"a.yaml", "days.yml"}


def test_calendars_elsewhere_count_instead(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "other.yaml").write_text("days")
    (folder / "calendars" / "days.yml").write_text("days")

    assert {path.name for path in stamps_of([folder], tmp_path / "else")} == {"a.yaml", "other.yaml"}


def test_a_write_a_replacement_and_a_deletion_are_changes(folder: Path) -> None:
    file, seen = folder / "a.yaml", [stamps_of([folder])]

    file.write_text("ab")
    seen.append(stamps_of([folder]))
    other = folder / "other"
    other.write_text("cd")
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    other.replace(file)  # as long and as old as before, but another file
    seen.append(stamps_of([folder]))
    file.unlink()
    seen.append(stamps_of([folder]))

    assert all(before != after for before, after in pairwise(seen))


def test_a_folder_that_is_gone_is_not_a_folder_without_files(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="missing is gone"):
        stamps_of([tmp_path / "missing"])


def test_a_file_is_due_once_its_writer_has_left_it_alone(folder: Path) -> None:
    files = SettledFiles(stamps_of([folder]))
    assert not files.are_due(stamps_of([folder]))

    for text in ("half", "half and more"):  # still being written
        (folder / "a.yaml").write_text(text)
        assert not files.are_due(stamps_of([folder]))
    assert files.are_due(stamps_of([folder]))
    assert files.are_due(stamps_of([folder]))  # until it was read

    files.note_read(stamps_of([folder]))
    assert not files.are_due(stamps_of([folder]))
