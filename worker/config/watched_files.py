"""Notices that pipeline or calendar files changed, and waits until their writers have left them alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from worker.config.files import UnreadableFile, yaml_files
from worker.config.load import ARCHETYPES_DIRECTORY, CALENDARS_DIRECTORY


@dataclass(frozen=True, slots=True)
class FileStamp:
    """Identifies the content of a file without reading it; every write and every replacement changes it."""

    modified_ns: int
    size_bytes: int
    inode: int


Stamps: TypeAlias = Mapping[Path, FileStamp]


def stamps_of(roots: Iterable[Path], calendars: Path | None = None) -> Stamps:
    """Return the stamps of all files that `load_directory` reads. Raises `UnreadableFile`."""
    roots = list(roots)
    if missing := [root for root in roots if not root.exists()]:
        # Not the same as without files: a folder that is not mounted says nothing about its files.
        raise UnreadableFile(f"{missing[0]} is gone")
    directories = [root if root.is_dir() else root.parent for root in roots]
    beside = [calendars] if calendars else [each / CALENDARS_DIRECTORY for each in directories]
    beside += [each / ARCHETYPES_DIRECTORY for each in directories]
    files = [*roots, *(path for path in beside if path.is_dir())]
    found: dict[Path, FileStamp] = {}
    for path in (file for root in files for file in yaml_files(root)):
        try:
            state = path.stat()
        except OSError:  # it went away while it was listed, or it is a dangling link: the next look sees
            continue
        found[path] = FileStamp(state.st_mtime_ns, state.st_size, state.st_ino)
    return found


class SettledFiles:
    """Says when files that changed may be read: once two looks in a row found them the same."""

    def __init__(self, read: Stamps) -> None:
        self._read = self._last = read

    def are_due(self, now: Stamps) -> bool:
        """Return whether files differ from those last read, and not from the last look."""
        is_settled, self._last = now == self._last, now
        return is_settled and now != self._read

    def note_read(self, stamps: Stamps) -> None:
        self._read = stamps
