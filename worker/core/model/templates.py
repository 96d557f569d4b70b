"""Templates: variables in the texts of a job, such as `${DATE}`, filled in when an attempt starts.

`$${` is a literal `${`, and any other `$` is itself. `${INTERLOCK_…}` and `$INTERLOCK_…` name secrets: they stay as
they are, including an escape, for a separate step that has the secrets and does nothing else. Filling in is one pass,
so a value that contains `${…}` is never expanded again.
"""

import re
from collections.abc import Container, Iterator, Mapping

VARIABLES = ("DATE", "HOUR", "PIPELINE", "SCHEDULE", "RUN_ID", "ATTEMPT", "PAR_DAY", "PAR_HOUR", "CALLBACK_URL")
SECRET_PREFIX = "INTERLOCK_"  # noqa: S105 - the prefix of names, not a secret
# Data about its run that a program receives: named like secrets, but not secret.
RUN_VARIABLES = (
    "INTERLOCK_TOKEN",
    "INTERLOCK_PIPELINE",
    "INTERLOCK_SCHEDULE",
    "INTERLOCK_PERIOD",
    "INTERLOCK_RUN_ID",
    "INTERLOCK_ATTEMPT",
    "INTERLOCK_PAR_DAY",
    "INTERLOCK_PAR_HOUR",
    "INTERLOCK_CALLBACK_URL",
)

_REFERENCE = re.compile(
    rf"(?P<secret>\$?\$\{{{SECRET_PREFIX}[^{{}}]*\}}|\$\$?{SECRET_PREFIX}\w+)|(?P<escape>\$\$\{{)|\$\{{(?P<name>[^{{}}]*)\}}"
)
_UNCLOSED = re.compile(r"(?<!\$)\$\{(?P<name>[^{}]*)(?:\{|\Z)")


def names(text: str) -> Iterator[str]:
    """Return the variables that a text refers to, in order, without secrets."""
    return (match["name"] for match in _REFERENCE.finditer(text) if match["name"] is not None)


def unknown_names(text: str, known: Container[str] = VARIABLES) -> list[str]:
    """Return the names that are no variable: `${DAET}`."""
    return [name for name in names(text) if name not in known]


def unclosed_names(text: str) -> list[str]:
    """Return the names whose brace is never closed, and which are therefore literal text: `${DATE`."""
    return [match["name"] for match in _UNCLOSED.finditer(text)]


def render(text: str, values: Mapping[str, str]) -> str:
    """Fill in the variables. A name without a value stays as it was written, so that it remains visible."""
    if "$" not in text:
        return text  # most texts

    def fill(match: re.Match[str]) -> str:
        if match["escape"]:
            return "${"
        name = match["name"]
        return match[0] if name is None else values.get(name, match[0])

    return _REFERENCE.sub(fill, text)
