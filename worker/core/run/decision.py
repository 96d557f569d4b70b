"""What the core decides about a fact: one `Decision`, which becomes one commit and the actions after it."""

from dataclasses import dataclass, replace

from worker.core.model.effects import Ignore
from worker.core.run.effects import Act, Effect, EvaluateAgain


@dataclass(frozen=True, slots=True)
class Decision:
    """An effect on the run, and the effects that go with it, in the order in which their rows are written.

    `main` is what becomes of the run: a change of its row, or, where the row stays, an event, an action or an `Ignore`.
    """

    main: Effect
    extras: tuple[Effect, ...] = ()

    @classmethod
    def of(cls, main: Effect, *extras: Effect) -> "Decision":
        return cls(main, extras)

    @property
    def effects(self) -> tuple[Effect, ...]:
        return (self.main, *self.extras)

    @property
    def actions(self) -> tuple[Act, ...]:
        """What to do once the rest is committed."""
        return tuple(effect for effect in self.effects if isinstance(effect, Act))

    @property
    def is_provisional(self) -> bool:
        """Whether the same fact must be decided again once this is committed."""
        return EvaluateAgain() in self.extras

    def noting(self, *effects: Effect) -> "Decision":
        """Return the decision with more effects directly after the main one, before the other extras."""
        return replace(self, extras=(*effects, *self.extras))

    def also(self, *effects: Effect) -> "Decision":
        """Return the decision with more effects after all others."""
        return replace(self, extras=(*self.extras, *effects))


def ignore(reason: str) -> Decision:
    """Decide that nothing changes, for this reason."""
    return Decision.of(Ignore(reason))
