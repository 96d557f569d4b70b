"""Play the example: three stages that hand over through files, with services that fail and stages that are killed.

Usage: play.py [--no-kills]. It works in a folder of its own, takes about a minute, and ends with exit code 0 only if
the graph equals one that is built in a single pass over all bills.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "jobs")]

from graph import Graph, chunks_of  # noqa: E402
from services import World, bill, served, topic_of  # noqa: E402

INTERLOCK: Final = [sys.executable, "-c", "from worker.cli.main import main; main()"]
STAGES: Final = ("poll", "classify", "embed")
PASSED_ON: Final = ("LAKE", "API", "MODEL", "GRAPH", "INTERLOCK_STORE", "PYTHONPATH")
PATIENCE_S: Final = 90.0
LOOK_S: Final = 1.0
OLD, NEW, CHANGED = 300, 150, 3


class Play:
    """One run of the example in a folder of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.graph = folder / "graph.db"
        today = datetime.now(UTC).date()
        self.days = [today - timedelta(days=back) for back in (2, 1, 0)]
        self.environment = {
            **os.environ,
            "LAKE": str(folder / "lake"),
            "API": url,
            "MODEL": url,
            "GRAPH": str(self.graph),
            "INTERLOCK_STORE": f"sqlite:///{folder}/interlock.db",
            "INTERLOCK_JOB_ENVIRONMENT": ",".join(PASSED_ON),
            "PYTHONPATH": str(HERE.parents[1]),
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        }

    def interlock(self, *words: str, typed: str = "") -> str:
        done = subprocess.run(  # noqa: S603  our own words
            [*INTERLOCK, *words],
            input=typed,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environment,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"interlock {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def records(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.interlock(*words, "--json").splitlines()]

    @contextmanager
    def started(self, *words: str) -> Generator[None]:
        with (self.folder / f"{words[0]}.log").open("w") as log:
            process = subprocess.Popen(  # noqa: S603  our own words
                [*INTERLOCK, *words], cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )
            try:
                yield
            finally:
                process.terminate()
                process.wait(20)

    def completed(self, stage: str, day: date, times: int = 1) -> dict[str, Any] | None:
        events = self.records("events", "--since", "1h", "--type", "JOB_COMPLETED")
        mine = [each for each in events if (each["pipeline"], each["period"]) == (stage, str(day))]
        return mine[-1] if len(mine) >= times else None

    def round(self, day: date, title: str, kills: Sequence[str] = ()) -> dict[str, dict[str, int]]:
        """Poll once, and wait until the last stage of the day is completed; return the summaries."""
        say(f"\n{title}")
        for stage in kills:
            (self.folder / f"kill-{stage}").write_text("0" if stage == "poll" else "1")
        self.interlock("sensor", "put", "poll", "poll-now", "by=play", "--period", str(day))
        found: dict[str, dict[str, int]] = {}
        for stage in STAGES:
            try:
                event = wait_for(f"{stage} of {day}", lambda stage=stage: self.completed(stage, day))
            except TimeoutError:
                say(self.interlock("status") + "".join(log.read_text()[-2000:] for log in self.folder.glob("*.log")))
                raise
            found[stage] = event["detail"]["summary"]
            say(f"  {event['message']}")
        for stage in kills:
            if (self.folder / f"kill-{stage}").exists():
                raise RuntimeError(f"{stage} was not killed: it had nothing to do")
        return found


def say(text: str) -> None:
    print(text, flush=True)


def wait_for(what: str, look: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(LOOK_S)
    raise TimeoutError(f"{what} did not complete within {PATIENCE_S:.0f} s")


def check_loop(it: Play) -> None:
    """Show that rules by which a stage would start itself are rejected."""
    loop = (HERE / "inbox.yaml").read_text().replace("writes: [s3://lake/processed/]", "writes: [s3://lake/raw/]")
    (it.folder / "loop.yaml").write_text(loop)
    try:
        it.interlock("inbox", "check", "loop.yaml")
    except RuntimeError as refused:
        if "this is a loop" not in str(refused):
            raise
        say("\nA rule by which classify would start itself is rejected: this is a loop")
        return
    raise RuntimeError("a rule by which classify would start itself was accepted")


def single_pass(world: World, path: Path) -> list[tuple[object, ...]]:
    """Build the graph of all bills at once, without stages, ledger or files; return its rows."""
    graph = Graph(str(path))
    bills = [{**each, "topic": topic_of(each["text"])} for each in world.bills.values()]
    graph.upsert((each, chunks_of(each)) for each in bills)
    rows = graph.rows()
    graph.close()
    return rows


def play(folder: Path, *, kills: bool = True) -> dict[str, Any]:
    """Play all rounds; return the summaries of each. Raises if anything is lost, or repeated in vain."""
    world = World()
    world.put(*(bill(number) for number in range(OLD)))
    shutil.copytree(HERE / "jobs", folder / "jobs")
    shutil.copytree(HERE / "pipelines", folder / "pipelines")
    (folder / "lake").mkdir()
    with served(world) as url:
        it = Play(folder, url)
        say(f"{OLD} bills are in the graph already, and are seeded in the ledger of the first stage")
        single_pass(world, it.graph)
        it.interlock("store", "init")
        seeds = "".join(json.dumps({"id": each["id"], "hash": each["hash"]}) + "\n" for each in world.bills.values())
        it.interlock("ledger", "seed", "polled", typed=seeds)
        rules = str(HERE / "inbox.yaml")
        with it.started("run", "--pipelines", "pipelines/"), it.started("inbox", "watch", "lake", "--rules", rules):
            results = {"first": it.round(it.days[0], "Nothing changed since the seed: the first run is nearly a no-op")}
            world.put(*(bill(number, edition=2) for number in range(CHANGED)))
            title = f"{CHANGED} bills changed: exactly those are processed"
            results["changed"] = it.round(it.days[1], title)
            world.put(*(bill(number) for number in range(OLD, OLD + NEW)))
            title = f"{NEW} bills are new, and each stage is killed in the middle (kill -9)"
            results["killed"] = it.round(
                it.days[2], title if kills else f"{NEW} bills are new", STAGES if kills else ()
            )
            say("\nOne stage is run again alone: it finds that everything is processed")
            it.interlock("rerun", "embed", str(it.days[2]), "--reason", "to show it")
            again = wait_for("the rerun of embed", lambda: it.completed("embed", it.days[2], times=2))
            results["again"] = {"embed": again["detail"]["summary"]}
            say(f"  {again['message']}")
            wait_for("the archive", lambda: {"done": 1} if not list((folder / "lake/raw").rglob("*.csv")) else None)
        check_loop(it)
        graph = Graph(str(it.graph))
        rows, wanted = graph.rows(), single_pass(world, folder / "single.db")
        graph.close()
        say(f"\n{world.refused} calls were refused by the services, and repeated by the stages")
        if rows != wanted:
            raise RuntimeError("the graph differs from the one of a single pass")
        say(f"the graph has {len(rows)} rows, and equals the one of a single pass over {len(world.bills)} bills")
    return results


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="choreography-") as folder:
        began = time.monotonic()
        play(Path(folder), kills="--no-kills" not in sys.argv)
        say(f"took {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
