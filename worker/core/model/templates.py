"""Variables in the texts of a job: `${DATE}` and friends, filled in when an attempt starts.

`$${` is a literal `${`, and any other `$` is itself. `${INTERLOCK_…}` and `$INTERLOCK_…` name secrets: they are left
as they are, escape included, for the step that holds the secrets and does nothing else. Filling in is one pass, so
a value that contains `${…}` is never looked at again.
"""

import re
from collections.abc import Iterator, Mapping

VARIABLES = ("DATE", "HOUR", "PIPELINE", "SCHEDULE", "RUN_ID", "ATTEMPT", "PAR_DAY", "PAR_HOUR")
SECRET_PREFIX = "INTERLOCK_"  # noqa: S105 - the prefix of names, not a secret
# What a program is told about its run: named like secrets, and none.
RUN_VARIABLES = (
    "INTERLOCK_TOKEN",
    "INTERLOCK_PIPELINE",
    "INTERLOCK_SCHEDULE",
    "INTERLOCK_PERIOD",
    "INTERLOCK_RUN_ID",
    "INTERLOCK_ATTEMPT",
    "INTERLOCK_PAR_DAY",
    "INTERLOCK_PAR_HOUR",
)

_REFERENCE = re.compile(
    rf"(?P<secret>\$?\$\{{{SECRET_PREFIX}[^{{}}]*\}}|\$\$?{SECRET_PREFIX}\w+)|(?P<escape>\$\$\{{)|\$\{{(?P<name>[^{{}}]*)\}}"
)
_UNCLOSED = re.compile(r"(?<!\$)\$\{(?P<name>[^{}]*)(?:\{|\Z)")


def names(text: str) -> Iterator[str]:
    """The variables a text refers to, in order; secrets are not among them."""
    return (match["name"] for match in _REFERENCE.finditer(text) if match["name"] is not None)


def unknown_names(text: str) -> list[str]:
    """Names that stand for nothing: `${DAET}`."""
    return [name for name in names(text) if name not in VARIABLES]


def unclosed_names(text: str) -> list[str]:
    """Names whose brace is never closed, and which are therefore taken literally: `${DATE`."""
    return [match["name"] for match in _UNCLOSED.finditer(text)]


def render(text: str, values: Mapping[str, str]) -> str:
    """Fill in the variables. A name without a value stays as it was written, so that nothing vanishes unseen."""

    def fill(match: re.Match[str]) -> str:
        if match["escape"]:
            return "${"
        name = match["name"]
        return match[0] if name is None else values.get(name, match[0])

    return _REFERENCE.sub(fill, text)
