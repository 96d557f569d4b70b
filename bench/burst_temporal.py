"""The peer: Temporal. One workflow for each fact, whose only activity runs the command. Run by the peers' own Python.

`worker PORT READY` serves until it is ended; `drive PORT` reads rounds of commands, one JSON line each, answering with
one line, once all of them are recorded as completed.
"""

import asyncio
import importlib
import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

QUEUE: Final = "bench"


def _definitions() -> tuple[Any, Any]:
    activity: Any = importlib.import_module("temporalio.activity")  # not a dependency of ours
    workflow: Any = importlib.import_module("temporalio.workflow")

    @activity.defn(name="run_command")
    async def run_command(arguments: list[str]) -> int:
        process = await asyncio.create_subprocess_exec(*arguments)
        return await process.wait()

    async def run(_: object, arguments: list[str]) -> int:
        return await workflow.execute_activity("run_command", arguments, start_to_close_timeout=timedelta(minutes=5))

    run.__qualname__ = "Fact.run"  # the peer accepts no workflow that is defined inside a function
    fact = type("Fact", (), {"run": workflow.run(run)})
    return run_command, workflow.defn(name="Fact", sandboxed=False)(fact)


async def _client(port: str) -> Any:  # noqa: ANN401 - a class of the peer
    client: Any = importlib.import_module("temporalio.client")
    for _ in range(200):
        try:
            return await client.Client.connect(f"127.0.0.1:{port}")
        except RuntimeError:  # the server is not there yet
            await asyncio.sleep(0.1)
    raise TimeoutError("the Temporal server did not start")


async def serve(port: str, ready: Path) -> None:
    worker: Any = importlib.import_module("temporalio.worker")
    run_command, fact = _definitions()
    async with worker.Worker(
        await _client(port),
        task_queue=QUEUE,
        workflows=[fact],
        activities=[run_command],
        max_concurrent_activities=200,
    ):
        await asyncio.to_thread(ready.write_text, "ready")
        await asyncio.Event().wait()


async def drive(port: str) -> None:
    client = await _client(port)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        commands: dict[str, list[str]] = json.loads(line)
        written: dict[str, int] = {}

        async def fact(name: str, arguments: list[str], written: dict[str, int] = written) -> Any:  # noqa: ANN401
            written[name] = time.time_ns()
            return await client.start_workflow("Fact", arguments, id=name, task_queue=QUEUE)

        handles = await asyncio.gather(*(fact(name, arguments) for name, arguments in commands.items()))
        results = [await handle.result() for handle in handles]
        assert results == [0] * len(results), results
        closed = [(await handle.describe()).close_time.timestamp() for handle in handles]
        print(json.dumps({"written_ns": written, "recorded_s": max(closed)}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        asyncio.run(serve(sys.argv[2], Path(sys.argv[3])))
    else:
        asyncio.run(drive(sys.argv[2]))
