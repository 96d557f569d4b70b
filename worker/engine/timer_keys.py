"""Timer keys: what a timer can wait for."""

from datetime import timedelta
from typing import Final, NamedTuple

from worker.core.model.keys import RowKind, RunKey

# Adopted rows are taken up within this time, each at its own offset. It is short because adoptions are spread out
# already, and no worker has handled the rows since their owner was lost.
ADOPTED_WITHIN: Final = timedelta(seconds=1)


class TimerKey(NamedTuple):
    """Names a row that something is due for. With `is_pass`, only an evaluation of its rules is due."""

    kind: RowKind
    key: RunKey
    is_pass: bool = False
