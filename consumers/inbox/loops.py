"""Find loops: a pipeline that writes where the inbox reads for it would start itself again and again.

Each rule says where its pipeline writes (`writes`). There is an edge from a pipeline to every rule that matches what it
writes, or its own events, and from there to the pipeline of that rule. A path back to its start is a loop.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from consumers.inbox.rules import BucketPrefix, InboxRule, OfEvents, OfObjects, Rules
from consumers.outbox.routes import SOURCE
from worker.core.model.events import EventType


@dataclass(frozen=True, slots=True)
class LoopStep:
    """LoopStep is one edge. `by` says what the pipeline does that the rule with this number matches."""

    pipeline: str
    by: str
    rule: int


@dataclass(frozen=True, slots=True)
class Loop:
    """Loop is the path of a loop; the last step leads back to the pipeline of the first."""

    steps: tuple[LoopStep, ...]

    def __str__(self) -> str:
        return ", then ".join(f"`{step.pipeline}` {step.by}" for step in self.steps)


def find_loops(rules: Rules) -> list[Loop]:
    """Return the shortest loop through each rule. A loop through several rules is returned once."""
    found: dict[frozenset[int], Loop] = {}
    for number in range(len(rules)):
        loop = _loop_through(number, rules)
        if loop is not None:
            found.setdefault(frozenset(step.rule for step in loop.steps), loop)
    return list(found.values())


def _loop_through(number: int, rules: Rules) -> Loop | None:
    pending: deque[tuple[str, tuple[LoopStep, ...]]] = deque([(rules[number].pipeline, ())])
    seen = {rules[number].pipeline}
    while pending:
        pipeline, way = pending.popleft()
        for step in _steps_from(pipeline, rules):
            further = (*way, step)
            if step.rule == number:
                return Loop(further)
            next_pipeline = rules[step.rule].pipeline
            if next_pipeline not in seen:
                seen.add(next_pipeline)
                pending.append((next_pipeline, further))
    return None


def _steps_from(pipeline: str, rules: Rules) -> Iterator[LoopStep]:
    mine = [rule for rule in rules if rule.pipeline == pipeline]
    places = [place for rule in mine for place in (*rule.writes, *((rule.archive,) if rule.archive else ()))]
    for number, rule in enumerate(rules):
        by = _heard(rule, pipeline, places)
        if by is not None:
            yield LoopStep(pipeline, by, number)


def _heard(rule: InboxRule, pipeline: str, places: list[BucketPrefix]) -> str | None:
    match rule.source:
        case OfObjects() as source:
            place = next((place for place in places if source.may_be_in(place) or _completes(rule, place)), None)
            return None if place is None else f"writes to {place}, which `{rule.name}` matches"
        case OfEvents(pattern):
            is_heard = any(pattern.matches(_event(kind, pipeline)) for kind in EventType)
            return f"has events that `{rule.name}` matches" if is_heard else None
        case _:
            return None


def _completes(rule: InboxRule, place: BucketPrefix) -> bool:
    """Return whether an object under a prefix could be the marker or the manifest of a rule that collects."""
    if rule.collect is None or not isinstance(rule.source, OfObjects) or rule.source.bucket != place.bucket:
        return False
    patterns = (rule.collect.marker, rule.collect.manifest)
    return any(pattern is not None and pattern.may_begin(place.prefix) for pattern in patterns)


def _event(kind: EventType, pipeline: str) -> Mapping[str, str | Mapping[str, str]]:
    return {"source": SOURCE, "detail-type": str(kind), "detail": {"pipelineId": pipeline}}
