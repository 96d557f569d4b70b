"""The errors of Interlock. A type answers one question: what should the caller do?"""


class WorkerError(Exception):
    """The root of everything we raise on purpose."""


class ConfigError(WorkerError):
    """Settings or files are wrong; a person fixes them (exit 2)."""


class RetryLater(WorkerError):
    """Throttled, timed out or unreachable; nothing is known to be wrong: back off and try again."""


class Rejected(WorkerError):
    """Can never succeed as it is: dead-letter it and go on."""
