"""Write problems as GitHub workflow commands, which GitHub shows at their lines in a pull request."""

from pathlib import Path

from worker.config.problems import Problem, ProblemSeverity
from worker.runtime.shown_text import visible

_LEVELS = {ProblemSeverity.ERROR: "error", ProblemSeverity.WARNING: "warning"}


def workflow_command(problem: Problem, root: Path) -> str:
    """Return the line that makes GitHub annotate the problem's place; `root` is where the repository is."""
    properties = {
        "file": relative_file(problem.file, root),
        "line": str(problem.line),
        "col": str(problem.column),
        "title": problem.path or "pipeline file",
    }
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    hint = f"\n{problem.hint}" if problem.hint else ""
    return f"::{_LEVELS[problem.severity]} {listed}::{_data(f'{problem.message}{hint}')}"


def relative_file(file: str, root: Path) -> str:
    """Return a file's path from the root of the repository; of a file outside of it, the whole path."""
    path = (Path.cwd() / file).resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()


def _data(text: str) -> str:
    # Control characters of a file must not reach a terminal; a line break would end the command and begin another.
    return visible(text).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
