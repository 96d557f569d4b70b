"""Ask for confirmation before a change: a question on a terminal, `--yes` everywhere else."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from worker.cli.terminal.console import Screen
from worker.core.errors import ConfigError

Ask = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Consent:
    """Consent says whether the user agrees to a change.

    `ask` is None if there is no terminal; then `is_given` alone decides.
    """

    is_given: bool
    ask: Ask | None

    @classmethod
    def by_option(cls, yes: bool) -> "Consent":
        return cls(yes, input if sys.stdin.isatty() else None)

    def obtain(self, screen: Screen, question: str) -> bool:
        """Return whether to go on. Raises `ConfigError` if consent is not given and there is no terminal."""
        if self.is_given:
            return True
        if self.ask is None:
            raise ConfigError(f"{question} There is no terminal to answer on, so nothing was changed; add --yes")
        screen.remark(f"{question} [y/N]", style="bold")
        try:
            answer = self.ask("")
        except EOFError:
            answer = ""
        return answer.strip().lower() in {"y", "yes"}
