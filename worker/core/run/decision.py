"""What the core decides about a fact: one `Decision`, which becomes one commit and the actions after it."""

from dataclasses import dataclass, replace

from worker.core.model.effects import Ignore
from worker.core.run.effects import Act, Create, DeadlineEffect, Effect, EvaluateAgain, PutRerunRequest, StartJob
from worker.core.run.facts import Fact, RerunRequested


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
    def deadline(self) -> DeadlineEffect | None:
        """What becomes of the SLA watch; a decision says at most one thing about it."""
        return next((effect for effect in self.effects if isinstance(effect, DeadlineEffect)), None)

    @property
    def is_provisional(self) -> bool:
        """Whether the same fact must be decided again once this is committed."""
        return EvaluateAgain() in self.extras

    @property
    def is_held_back(self) -> bool:
        """Whether the fact is put off, so that whoever brought it must bring it again."""
        return isinstance(self.main, Ignore) and self.main.is_held_back

    @property
    def begins_work(self) -> bool:
        """Whether a run or a job begins, so that the commit must fail if a pause began meanwhile."""
        return self._starts_job or any(not made.run.is_ended for made in self._created)

    def is_held_by_pause(self, fact: Fact) -> bool:
        """Return whether the decision must wait for the end of a pause that is known when it is made.

        That is more than work: a rerun request waits whatever its answer, and so does a run that is created only to be
        given up, although a pause that begins before its commit does not stop that one.
        """
        return self._starts_job or bool(self._created) or isinstance(fact, RerunRequested)

    @property
    def _starts_job(self) -> bool:
        return any(isinstance(effect, StartJob) for effect in self.effects)

    @property
    def _created(self) -> list[Create]:
        return [effect for effect in self.effects if isinstance(effect, Create)]

    def noting(self, *effects: Effect) -> "Decision":
        """Return the decision with more effects directly after the main one, before the other extras."""
        return replace(self, extras=(*effects, *self.extras))

    def also(self, *effects: Effect) -> "Decision":
        """Return the decision with more effects after all others."""
        return replace(self, extras=(*self.extras, *effects))

    def without_request(self) -> "Decision":
        """Return the decision without the rerun request that it puts."""
        return replace(self, extras=tuple(effect for effect in self.extras if not isinstance(effect, PutRerunRequest)))


def ignore(reason: str) -> Decision:
    """Decide that nothing changes, for this reason."""
    return Decision.of(Ignore(reason))
