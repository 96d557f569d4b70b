"""What can be waited for: a timer's key."""

from datetime import timedelta
from typing import Final, NamedTuple

from worker.core.model.keys import RowKind, RunKey

# Adopted rows are taken up within so long, each at its own place. Short, because they come spread out already, and
# nobody has looked after them since their owner was lost.
ADOPTED_WITHIN: Final = timedelta(seconds=1)


class TimerKey(NamedTuple):
    """A row that something is due for. `is_pass`: only a pass over its rules."""

    kind: RowKind
    key: RunKey
    is_pass: bool = False
