"""Decision: what the core decides about a fact. It becomes one commit and the actions after it."""

from dataclasses import dataclass, replace
from datetime import datetime

from worker.core.model.effects import Ignore
from worker.core.run.effects import (
    Act,
    Create,
    DeadlineEffect,
    Effect,
    EvaluateAgain,
    EvaluateNow,
    PutRerunRequest,
    StartJob,
)
from worker.core.run.facts import Fact, RerunRequested


@dataclass(frozen=True, slots=True)
class Decision:
    """Holds an effect on the run, and the effects that go with it, in the order their rows are written.

    `main` is the effect on the run: a change of its row or, if the row stays as it is, an event, an action or an
    `Ignore`.
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
        """Return the actions to take after the commit."""
        return tuple(effect for effect in self.effects if isinstance(effect, Act))

    @property
    def deadline(self) -> DeadlineEffect | None:
        """Return the effect on the SLA watch; a decision has at most one."""
        return next((effect for effect in self.effects if isinstance(effect, DeadlineEffect)), None)

    @property
    def is_provisional(self) -> bool:
        """Return whether the same fact must be decided again after this commit."""
        return EvaluateAgain() in self.extras

    @property
    def is_held_back(self) -> bool:
        """Return whether the fact is held back, so that the caller must deliver it again."""
        return isinstance(self.main, Ignore) and self.main.is_held_back

    @property
    def held_back_until(self) -> datetime | None:
        """When a fact that is put off may come again; None if it is not, or the time is unknown."""
        return self.main.until if isinstance(self.main, Ignore) else None

    @property
    def ignored_because(self) -> str | None:
        """Why nothing changes; None if something does."""
        return self.main.reason if isinstance(self.main, Ignore) and not self.extras else None

    @property
    def begins_work(self) -> bool:
        """Return whether a run or a job begins, so that the commit must fail if a pause began meanwhile."""
        return self.starts_job or any(not made.run.is_ended for made in self._created)

    def is_held_by_pause(self, fact: Fact) -> bool:
        """Return whether the decision must wait for the end of a pause that is known when it is made.

        This covers more than `begins_work`. A rerun request waits whatever its answer is. A run that is created as
        failed waits too, although a pause that begins before its commit does not stop it.
        """
        return self.starts_job or bool(self._created) or isinstance(fact, RerunRequested)

    @property
    def starts_job(self) -> bool:
        """Return whether the decision orders the start of a job."""
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

    def followed_by(self, passed: "Decision") -> "Decision":
        """Return one decision that creates a run and starts its job, instead of two that do so one by one."""
        extras = tuple(effect for effect in self.extras if not isinstance(effect, EvaluateNow))
        return replace(self, extras=(*extras, *passed.effects))

    def without_request(self) -> "Decision":
        """Return the decision without the rerun request that it puts."""
        return replace(self, extras=tuple(effect for effect in self.extras if not isinstance(effect, PutRerunRequest)))


def ignore(reason: str) -> Decision:
    """Decide that nothing changes, for the given reason."""
    return Decision.of(Ignore(reason))
