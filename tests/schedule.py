"""In which order, and in which pieces, the tests are given to the processes that run them.

What waits for real processes and emulators begins first: it needs hardly any computing, and everything else fills the
time that it waits. Then comes what computes for long, so that no long test is left for the end. The many short tests
follow in pieces of a file: to give them out one by one, as pytest-xdist would, costs more than most of them take.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadgroup import LoadGroupScheduling
from xdist.workermanage import WorkerController

# Groups whose tests share what they have started, and so run one after another in one process. Longest first.
WAITING: Final = (
    "aws-workers",
    "processes",
    "aws",
    "dynamodb-ministack",
    "browser",
    "dynamodb-moto",
    "redis",
    "demo",
    "postgresql",
    "terraform",
)
# A test of these takes a second or many: each is given out by itself.
LONG: Final = (
    "tests/docs/",
    "tests/simulation/",
    "tests/scenario/test_crash_points.py",
    "tests/scenario/test_cron_year.py",
    "tests/scenario/test_watchdog_failover.py",
    "tests/property/",
    "tests/modelcheck/",
)
PIECE: Final = 16  # short tests given out together


def group_of(nodeid: str) -> str | None:
    """Return the group of a test, which pytest-xdist writes behind an @ after the name."""
    return nodeid.rpartition("@")[2] if nodeid.rfind("@") > nodeid.rfind("]") else None


def rank(nodeid: str) -> int:
    """Return when a test's turn comes: the lower, the sooner."""
    group = group_of(nodeid)
    if group is not None:
        return WAITING.index(group) if group in WAITING else len(WAITING)
    return len(WAITING) + 1 + next((at for at, path in enumerate(LONG) if nodeid.startswith(path)), len(LONG))


def pieces(nodeids: Iterable[str]) -> dict[str, str]:
    """Return the name of the piece that each test is given out with."""
    met = Counter[str]()
    found: dict[str, str] = {}
    for nodeid in nodeids:
        file = nodeid.partition("::")[0]
        found[nodeid] = group_of(nodeid) or (nodeid if nodeid.startswith(LONG) else f"{file} {met[file] // PIECE}")
        met[file] += 1
    return found


class SuiteScheduling(LoadGroupScheduling):
    """Gives out the pieces in the order of their ranks."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # ours is the order: groups are not long because they have many tests
        self._pieces: dict[str, str] = {}

    def schedule(self) -> None:
        if not self._pieces:
            # All processes have collected the same tests, or the run ends here.
            self._pieces = pieces(next(iter(self.registered_collections.values())))
        if self.collection is None:
            super().schedule()
        else:
            self._give_to_all()

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test that ended a process, or None. pytest-xdist would run it again, and lose more processes."""
        left = self.assigned_work.pop(node)
        ended = next((nodeid for piece in left.values() for nodeid, is_done in piece.items() if not is_done), None)
        if ended is None:
            return None
        for name, piece in left.items():
            rest = {nodeid: is_done or nodeid == ended for nodeid, is_done in piece.items()}
            if not all(rest.values()):
                self.workqueue[name] = rest
        self._give_to_all()
        return ended

    def _give_to_all(self) -> None:
        """Give out work to each process that is ready; one that replaces a lost one may still be collecting."""
        for node in self.nodes:
            if node in self.registered_collections:
                self._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        return self._pieces[nodeid]
