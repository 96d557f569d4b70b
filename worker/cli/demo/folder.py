"""Create the demo's directory, marked by a file so that the demo never changes any other directory."""

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen
from worker.core.errors import ConfigError

SCRIPT: Final = Path(__file__).parent / "files"  # inside the package, so that an installed wheel has them
NAME: Final = "interlock-demo"
MARK: Final = ".interlock-demo"
STORE: Final = "interlock.db"
ALERTS: Final = "alerts.txt"
LOG: Final = "worker.log"
# Everything that a demo leaves behind, the mark last: an interrupted removal can be continued.
_MADE: Final = ("pipelines", "jobs", "lake", ALERTS, LOG, f"{STORE}*", MARK)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderRequest:
    """FolderRequest says where the demo runs.

    `directory` None means `interlock-demo` if there is a terminal to ask on or `--yes` is given, else a new name.
    """

    directory: Path | None
    consent: Consent


def make_folder(screen: Screen, request: FolderRequest, script: Path = SCRIPT) -> Path | None:
    """Create the directory with the demo's pipelines and jobs; None if the user declines.

    Raises `ConfigError` if the directory is not a demo's or cannot be created, or if the demo's files are not
    installed.
    """
    if not script.is_dir():
        raise ConfigError(
            f"there is no demo at {script}, so the installation is incomplete; install Interlock again and keep all "
            "files of its package"
        )
    try:
        folder = _chosen(request)
        if not _is_free(folder) and not _cleared(screen, folder, request.consent):
            return None
        _fill(folder, script)
    except OSError as error:
        raise ConfigError(f"the demo's directory cannot be made: {error}; name another with --dir") from error
    return folder


def jobs_path() -> str:
    """Return the PATH for jobs: first the directory of this Python, which also has `interlock`."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def _chosen(request: FolderRequest) -> Path:
    if request.directory is not None:
        return request.directory.absolute()
    if request.consent.ask is None and not request.consent.is_given:
        return Path(tempfile.mkdtemp(prefix=f"{NAME}-", dir=Path.cwd()))
    return Path.cwd() / NAME


def _is_free(folder: Path) -> bool:
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def _cleared(screen: Screen, folder: Path, consent: Consent) -> bool:
    if not (folder / MARK).is_file():
        raise ConfigError(f"{folder} is not a demo's directory, so it is left alone; name another with --dir")
    if not consent.obtain(screen, f"{folder} holds an earlier demo; replace it?"):
        return False
    for pattern in _MADE:
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return True


def _fill(folder: Path, script: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text("made by `interlock demo`, which may replace what it made here\n", encoding="utf-8")
    for part in ("pipelines", "jobs"):
        shutil.copytree(script / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
