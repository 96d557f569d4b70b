"""Name the environment variables by which a shell asks `interlock` for something."""

from typing import Final

COMPLETION_VARIABLE: Final = "_INTERLOCK_COMPLETE"  # a shell sets it to request completions; Typer chooses the name
