"""The peer: what the KCL's daemon starts to handle records. Run by the peers' own Python; writes one JSON object.

The daemon reads the stream and hands records over in lines of text, so both processes are what reading costs.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from time import process_time
from typing import Any, Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
SEEN: Final[list[object]] = []


def handle(change: dict[str, Any]) -> None:
    SEEN[:] = [change["dynamodb"]["NewImage"]["rows"]["N"]]


class Processor:
    """One shard. Nothing is checkpointed: no other reader of this comparison does it either."""

    version: Final = 3

    def __init__(self, result: Path, warm_up: int, measured: int) -> None:
        self._result, self._warm_up, self._last = result, warm_up, warm_up + measured
        self._count, self._began_after, self._began_at_s = 0, 0, 0.0

    def process_records(self, given: Any) -> None:  # noqa: ANN401 - not a dependency of ours, so no checker knows it
        for record in given.records:
            handle(json.loads(record.binary_data))
        before, self._count = self._count, self._count + len(given.records)
        if before < self._warm_up <= self._count:
            self._began_after, self._began_at_s = self._count, cpu_s()
        elif before < self._last <= self._count:
            self._tell({"records_per_cpu_s": (self._count - self._began_after) / (cpu_s() - self._began_at_s)})

    def initialize(self, given: object) -> None: ...

    def lease_lost(self, given: object) -> None: ...

    def shard_ended(self, given: object) -> None: ...

    def shutdown_requested(self, given: object) -> None: ...

    def _tell(self, figures: dict[str, float]) -> None:
        half = self._result.with_suffix(".half")
        half.write_text(json.dumps(figures))
        half.rename(self._result)


def cpu_s() -> float:
    """Processor time of this process and of the daemon that has started it."""
    after_name = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    return process_time() + sum(map(int, after_name[11:13])) / TICKS_PER_S


def main() -> None:
    result, warm_up, measured = sys.argv[1:]
    kcl: Any = importlib.import_module("amazon_kclpy.kcl")
    kcl.KCLProcess(Processor(Path(result), int(warm_up), int(measured))).run()


if __name__ == "__main__":
    main()
