"""Write problems as SARIF 2.1.0, which code scanning services read."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final
from urllib.parse import quote

from worker.cli.terminal.workflow_commands import relative_file
from worker.config.problems import Problem, ProblemSeverity
from worker.config.schema import PipelineFile
from worker.core.model.values import Json

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {ProblemSeverity.ERROR: "error", ProblemSeverity.WARNING: "warning"}
_FILE_RULE: Final = "file"  # of a problem that is in no section, for example of the YAML itself


def sarif_log(problems: Sequence[Problem], root: Path, *, is_complete: bool) -> dict[str, Json]:
    """Return a log with one run; a result's rule is the section of the file it is about.

    `root` is where the repository is. `is_complete` is false if no file could be read.
    """
    sections = _sections()
    rules = [_rule(_FILE_RULE, "The file can be read."), *(_rule(name, text) for name, text in sections.items())]
    indexes = {name: number for number, name in enumerate((_FILE_RULE, *sections))}
    driver: dict[str, Json] = {"name": "interlock", "version": version("interlock"), "rules": rules}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "invocations": [{"executionSuccessful": is_complete}],
                "columnKind": "unicodeCodePoints",
                "results": [_result(problem, indexes, root) for problem in problems],
            }
        ],
    }


def _sections() -> dict[str, str]:
    """Return the sections of a pipeline file with what they say."""
    return {field.alias or name: field.description or "" for name, field in PipelineFile.model_fields.items()}


def _rule(name: str, text: str) -> dict[str, Json]:
    return {"id": f"pipeline/{name}", "shortDescription": {"text": text or name}}


def _result(problem: Problem, indexes: dict[str, int], root: Path) -> dict[str, Json]:
    section = problem.path.partition(".")[0].partition("[")[0]
    rule = section if section in indexes else _FILE_RULE
    subject = f"{problem.path}: " if problem.path else ""
    hint = f"\n{problem.hint}" if problem.hint else ""
    return {
        "ruleId": f"pipeline/{rule}",
        "ruleIndex": indexes[rule],
        "level": _LEVELS[problem.severity],
        "message": {"text": f"{subject}{problem.message}{hint}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _location(relative_file(problem.file, root)),
                    "region": {"startLine": problem.line, "startColumn": problem.column},
                }
            }
        ],
    }


def _location(file: str) -> dict[str, Json]:
    if file.startswith("/"):
        return {"uri": f"file://{quote(file)}"}
    return {"uri": quote(file), "uriBaseId": "%SRCROOT%"}
