"""Root causes of an exception group, for a message that names them."""

from collections.abc import Iterator
from typing import Final, cast

CAUSES_MAX: Final = 5  # a message must fit in a line; the traceback has the rest


def root_causes(error: BaseException) -> list[BaseException]:
    """Return the exceptions inside nested groups in order, each type and text once; never empty."""
    found: dict[tuple[type[BaseException], str], BaseException] = {}
    for leaf in _leaves(error):
        found.setdefault((type(leaf), str(leaf)), leaf)
    return list(found.values())[:CAUSES_MAX]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for member in cast("BaseExceptionGroup[BaseException]", error).exceptions:
        yield from _leaves(member)
