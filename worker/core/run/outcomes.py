"""How a job that did not succeed went wrong: what a run may do next depends on it, and on nothing else."""

from enum import StrEnum


class FailureCategory(StrEnum):
    """The kind of a failure, whether the job was refused at its start or failed later."""

    PERMANENT = "PERMANENT"  # the same request fails again: wrong code, wrong configuration; counts as a code retry
    TRANSIENT = "TRANSIENT"  # the next attempt may well succeed: throttled, lost host, a crash
    TIMEOUT = "TIMEOUT"  # the job took longer than it, or its target, allows
