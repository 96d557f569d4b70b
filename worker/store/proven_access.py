"""Fail fast if a store refuses access at the start; later, treat a refusal as temporary.

Wrong settings must be visible at once. Once an operation has succeeded, the settings are known to be right for it: a
policy that is being replaced, or a password that is being changed, must not end every worker of an installation. The
fence still stops a worker that cannot write.
"""


class ProvenAccess:
    """Remembers which operations the store has accepted. One process shares one, also between threads."""

    def __init__(self) -> None:
        self._operations: set[str] = set()

    def prove(self, operation: str) -> None:
        self._operations.add(operation)

    def is_proven(self, operation: str) -> bool:
        return operation in self._operations
