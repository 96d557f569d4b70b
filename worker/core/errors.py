"""Errors of Interlock: each type states what the caller should do."""


class WorkerError(Exception):
    """WorkerError: the base class of every error that Interlock raises on purpose."""


class ConfigError(WorkerError):
    """ConfigError: settings or files are wrong; a person must fix them (exit code 2)."""


class RetryLater(WorkerError):
    """RetryLater: a call was throttled, timed out or found no peer. Back off and retry.

    Nothing is known to be wrong.
    """


class Rejected(WorkerError):
    """Rejected: the input can never succeed as it is. Make it a dead letter and continue."""
