"""Lists the YAML files of a directory and reads their text."""

import stat
from pathlib import Path

from worker.yaml.document import TextMark
from worker.yaml.parser import TEXT_BYTES_MAX

_SUFFIXES = {".yaml", ".yml"}


class UnreadableFile(Exception):
    """Signals a file that cannot be read as text; the message says why and `mark` where."""

    def __init__(self, message: str, mark: TextMark | None = None) -> None:
        super().__init__(message)
        self.mark = mark or TextMark(1, 1)


def yaml_files(path: Path) -> list[Path]:
    """Return the YAML files directly in a directory, sorted by name; any other path gives itself.

    Raises `UnreadableFile` if the directory cannot be listed.
    """
    try:
        if not path.is_dir():
            return [path]
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise UnreadableFile(_reason(error)) from error
    return [path / name for name in names if Path(name).suffix in _SUFFIXES and not (path / name).is_dir()]


def read_text(path: Path) -> str:
    """Return the whole text of a file. Raises `UnreadableFile`.

    It never waits on a pipe and never reads more than may be loaded.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UnreadableFile("is not a regular file")
        with path.open("rb") as file:
            content = file.read(TEXT_BYTES_MAX + 1)
    except OSError as error:
        raise UnreadableFile(_reason(error)) from error
    if len(content) > TEXT_BYTES_MAX:
        raise UnreadableFile(f"is larger than {TEXT_BYTES_MAX // 1024} KiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        mark = TextMark(before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        raise UnreadableFile(f"is not UTF-8 text (byte 0x{content[error.start]:02x})", mark) from error


def _reason(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"
