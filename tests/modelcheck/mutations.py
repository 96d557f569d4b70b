"""Mistakes one could make in the lease protocol, as changes of what the shipped code writes."""

from collections.abc import Sequence

from msgspec.structs import replace

from tests.modelcheck.modeltable import Mutate
from worker.store.table import Absent, AllOf, AnyOf, Check, Condition, Equals, Less, Update, Write

ROW = "(row)"  # the condition that there is no row yet


def drop(*attributes: str) -> Mutate:
    """Forget the conditions on these attributes."""
    return lambda writes: [[_relaxed(write, attributes) for write in writes]]


def split(writes: Sequence[Write]) -> Sequence[Sequence[Write]]:
    """Make several commits of one."""
    return [[write] for write in writes]


def keep_epoch(writes: Sequence[Write]) -> Sequence[Sequence[Write]]:
    """Change the owner and leave the epoch."""
    return [[_without_set(write, "epoch") for write in writes]]


def _without_set(write: Write, attribute: str) -> Write:
    assert isinstance(write, Update)
    return replace(write, set={name: value for name, value in write.set.items() if name != attribute})


def _relaxed(write: Write, attributes: Sequence[str]) -> Write:
    if isinstance(write, Check):
        return write

    return replace(write, condition=_without(write.condition, attributes))


def _without(condition: Condition | None, attributes: Sequence[str]) -> Condition | None:
    match condition:
        case AllOf(parts):
            kept = [each for part in parts if (each := _without(part, attributes)) is not None]
            return AllOf(tuple(kept)) if kept else None
        case AnyOf(parts):
            return None if any(_without(part, attributes) is None for part in parts) else condition
        case Equals(attribute, _) | Less(attribute, _) if attribute in attributes:
            return None
        case Absent(attribute) if (attribute or ROW) in attributes:
            return None
        case _:
            return condition
