"""A disk that remembers: what SQLite wrote, when it waited for it, and what would be left after a power loss.

It changes the functions SQLite calls to open, write, cut and sync files, in the very library that Python's `sqlite3`
uses, so the store under test runs unchanged. A real disk may keep any part of what was not yet synced, and
`after_power_loss` gives such outcomes for any moment. What this cannot show is a disk that lies about a sync.
"""

import _sqlite3  # the module behind `sqlite3`: through it we reach the library it is linked with
import ctypes
import itertools
import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

OK, FULL, IOERR_FSYNC = 0, 13, 1034
OPEN_DATABASE, OPEN_JOURNAL, OPEN_WAL = 0x00000100, 0x00000800, 0x00080000
SECTOR_BYTES: Final = 512  # what a disk writes whole

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_OPEN = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _POINTER, _INT, _POINTER)
_DELETE = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _INT)
_WRITE = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _INT, _LONG)
_TRUNCATE = ctypes.CFUNCTYPE(_INT, _POINTER, _LONG)
_SYNC = ctypes.CFUNCTYPE(_INT, _POINTER, _INT)


class _Vfs(ctypes.Structure):
    """The head of SQLite's `sqlite3_vfs`."""

    _fields_ = (
        ("version", _INT),
        ("file_bytes", _INT),
        ("path_max", _INT),
        ("next", _POINTER),
        ("name", ctypes.c_char_p),
        ("data", _POINTER),
        ("open", _OPEN),
        ("delete", _DELETE),
    )
    open: Any
    delete: Any


class _Methods(ctypes.Structure):
    """SQLite's `sqlite3_io_methods`: what can be done with an open file."""

    _fields_ = (
        ("version", _INT),
        ("close", _POINTER),
        ("read", _POINTER),
        ("write", _WRITE),
        ("truncate", _TRUNCATE),
        ("sync", _SYNC),
        ("others", _POINTER * 13),
    )
    write: Any
    truncate: Any
    sync: Any


@dataclass(frozen=True, slots=True)
class Write:
    file: str
    offset: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    file: str
    size: int


@dataclass(frozen=True, slots=True)
class Delete:
    file: str
    with_folder: bool


@dataclass(frozen=True, slots=True)
class Sync:
    """`with_folder`: the folder, too. SQLite does so at the first sync of a journal or WAL that it has made."""

    file: str
    with_folder: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Not the disk's doing: the store told a caller that its commit is safe."""

    what: str


Change: TypeAlias = Write | Truncate | Delete
Happening: TypeAlias = Change | Sync | Acknowledged


@dataclass(slots=True)
class Disk:
    """Everything that happened, in order. `is_full` and `sync_fails` make it misbehave from then on."""

    happenings: list[Happening] = field(default_factory=list[Happening])
    is_full: bool = False
    sync_fails: bool = False
    _kept: list[object] = field(default_factory=list[object])  # SQLite calls these; Python must not collect them

    def acknowledge(self, what: str) -> None:
        self.happenings.append(Acknowledged(what))

    def watch(self, file: int, name: str, *, is_log: bool) -> None:
        """Stand between SQLite and one open file; `is_log` for a journal or WAL."""
        slot = ctypes.cast(file, ctypes.POINTER(ctypes.POINTER(_Methods)))
        real = slot.contents.contents
        watched = _Methods.from_buffer_copy(real)

        def write(file: int, content: int, size: int, offset: int) -> int:
            if self.is_full:
                return FULL
            self.happenings.append(Write(name, offset, ctypes.string_at(content, size)))
            return real.write(file, content, size, offset)

        def truncate(file: int, size: int) -> int:
            self.happenings.append(Truncate(name, size))
            return real.truncate(file, size)

        def sync(file: int, flags: int) -> int:
            if self.sync_fails:
                return IOERR_FSYNC
            result = real.sync(file, flags)
            is_first = is_log and not self._was_synced_since_it_was_made(name)
            self.happenings.append(Sync(name, with_folder=is_first))
            return result

        watched.write, watched.truncate, watched.sync = _WRITE(write), _TRUNCATE(truncate), _SYNC(sync)
        self._kept += [watched, real]
        slot[0] = ctypes.pointer(watched)

    def _was_synced_since_it_was_made(self, name: str) -> bool:
        for happening in reversed(self.happenings):
            if isinstance(happening, Delete) and happening.file == name:
                return False
            if isinstance(happening, Sync) and happening.file == name:
                return True
        return False


@contextmanager
def watched_disk() -> Generator[Disk]:
    """Watch every database file and WAL that is opened meanwhile, in this process."""
    library = ctypes.CDLL(_sqlite3.__file__)
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    vfs = library.sqlite3_vfs_find(None).contents
    # By address: the fields themselves will be ours from now on.
    real_open = _OPEN(ctypes.cast(vfs.open, _POINTER).value or 0)
    real_delete = _DELETE(ctypes.cast(vfs.delete, _POINTER).value or 0)
    disk = Disk()

    def open_file(vfs: int, name: int | None, file: int, flags: int, flags_out: int) -> int:
        result = real_open(vfs, name, file, flags, flags_out)
        if result == OK and name is not None and flags & (OPEN_DATABASE | OPEN_JOURNAL | OPEN_WAL):
            disk.watch(file, _name(name), is_log=not flags & OPEN_DATABASE)
        return result

    def delete_file(vfs: int, name: int, is_synced: int) -> int:
        disk.happenings.append(Delete(_name(name), bool(is_synced)))
        return real_delete(vfs, name, is_synced)

    ours = _OPEN(open_file), _DELETE(delete_file)
    vfs.open, vfs.delete = ours
    try:
        yield disk
    finally:
        vfs.open, vfs.delete = real_open, real_delete


def _name(path: int) -> str:
    return Path(ctypes.string_at(path).decode()).name


def after_power_loss(happenings: Sequence[Happening], chance: random.Random | None = None) -> dict[str, bytes]:
    """What the files hold if the power fails now: all that was synced, and of the rest what chance has kept.

    Without `chance` nothing of the rest is kept. With it, each later write is kept, lost, or torn between sectors.
    """
    safe: dict[str, bytearray] = {}
    unsafe: dict[str, list[Change]] = {}
    for happening in happenings:
        match happening:
            case Write(file) | Truncate(file) | Delete(file):
                unsafe.setdefault(file, []).append(happening)
            case Sync(file):
                _apply_all(safe, file, unsafe.pop(file, []))
            case Acknowledged():
                pass
        if isinstance(happening, Sync | Delete) and happening.with_folder:
            for file in [file for file, changes in unsafe.items() if isinstance(changes[-1], Delete)]:
                _apply_all(safe, file, unsafe.pop(file))
    for file, changes in unsafe.items():
        _apply_all(safe, file, [part for change in changes for part in _survivors(change, chance)])
    return {file: bytes(content) for file, content in safe.items()}


def _survivors(change: Change, chance: random.Random | None) -> Sequence[Change]:
    if chance is None or chance.random() < 0.3:
        return []
    if not isinstance(change, Write) or chance.random() < 0.5:
        return [change]
    return [part for part in _sectors(change) if chance.random() < 0.5]


def _sectors(write: Write) -> list[Write]:
    end = write.offset + len(write.content)
    edges = [write.offset, *range((write.offset // SECTOR_BYTES + 1) * SECTOR_BYTES, end, SECTOR_BYTES), end]
    return [
        Write(write.file, low, write.content[low - write.offset : high - write.offset])
        for low, high in itertools.pairwise(edges)
    ]


def _apply_all(files: dict[str, bytearray], file: str, changes: Sequence[Change]) -> None:
    for change in changes:
        content = files.setdefault(file, bytearray())
        match change:
            case Write(_, offset, written):
                content.extend(bytes(max(0, offset + len(written) - len(content))))
                content[offset : offset + len(written)] = written
            case Truncate(_, size):
                del content[size:]
            case Delete():
                del files[file]
