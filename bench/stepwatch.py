"""A worker whose event loop says which of its steps take long; run it as a file, so that it imports any checkout.

A step is what the loop does between two waits. While one takes long, nothing else happens in the worker. Steps are
measured in CPU time of the loop's thread, so other processes on the machine do not count; garbage collection does.
"""

import asyncio
import json
import sys
import threading
from time import thread_time
from typing import Any, Final

SAID_FROM_S: Final = 0.02


def watch_steps() -> None:
    handle: Any = asyncio.Handle
    stock = handle._run  # noqa: SLF001 - the one place that each step passes

    def run(self: Any) -> None:  # noqa: ANN401 - what the loop calls
        began_s = thread_time()
        stock(self)
        took_s = thread_time() - began_s
        if took_s >= SAID_FROM_S and threading.current_thread() is threading.main_thread():
            sys.stderr.write(json.dumps({"event": "loop.step", "cpu_s": round(took_s, 4)}) + "\n")

    handle._run = run  # noqa: SLF001


if __name__ == "__main__":
    from worker.cli.main import main

    watch_steps()
    main()
