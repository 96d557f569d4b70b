"""Interprets the exit of a program for its run.

| Exit code | Meaning |
| --- | --- |
| 0 | success |
| 64, 65, 77, 78 | PERMANENT: wrong usage, data, permission or configuration, as in sysexits.h |
| 126, 127 | PERMANENT: a program that the command called is not executable or does not exist |
| 124, or the runner's own limit | TIMEOUT; 124 is what `timeout` returns |
| any other, or killed by a signal | TRANSIENT |
"""

from datetime import UTC, datetime
from signal import strsignal

from worker.core.run.state import FailureCategory
from worker.jobs.command.files import STOPPED, TIMED_OUT, CommandResult
from worker.jobs.runner import Failed, Succeeded

PERMANENT_EXIT_CODES = frozenset({64, 65, 77, 78, 126, 127})
TIMEOUT_EXIT_CODE = 124


def judge(result: CommandResult, last_line: str) -> Succeeded | Failed:
    """Return the status for a result. The last line of the output usually gives the reason."""
    ended_at = datetime.fromtimestamp(result.ended_at_s, UTC)
    why = f": {last_line}" if last_line else ""
    if result.ending == TIMED_OUT or result.exit_code == TIMEOUT_EXIT_CODE:
        return Failed(FailureCategory.TIMEOUT, f"ended because it took too long{why}", ended_at)
    if result.ending == STOPPED:
        return Failed(FailureCategory.TRANSIENT, f"stopped on request{why}", ended_at)
    if result.exit_code < 0:
        name = strsignal(-result.exit_code) or "unknown"
        return Failed(FailureCategory.TRANSIENT, f"killed by signal {-result.exit_code} ({name}){why}", ended_at)
    if result.exit_code:
        permanent = result.exit_code in PERMANENT_EXIT_CODES
        category = FailureCategory.PERMANENT if permanent else FailureCategory.TRANSIENT
        return Failed(category, f"exit code {result.exit_code}{why}", ended_at)
    return Succeeded(ended_at)
