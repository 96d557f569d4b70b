"""Play the example: three stages that hand over through files, with services that fail and stages that are killed.

Usage: play.py [--no-kills] [--s3 EMULATOR]. It works in a folder of its own, takes about a minute, and ends with exit
code 0 only if the graph equals one that is built in a single pass over all bills. With `--s3`, the objects are in a
bucket of an emulator of AWS, which notifies a queue, and the store is DynamoDB: EMULATOR is the program `ministack`.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "jobs")]

from graph import Graph, chunks_of  # noqa: E402
from services import World, bill, served, topic_of  # noqa: E402

INTERLOCK: Final = [sys.executable, "-c", "from worker.cli.main import main; main()"]
STAGES: Final = ("poll", "classify", "embed")
PASSED_ON: Final = ("LAKE", "KILLS", "API", "MODEL", "GRAPH", "INTERLOCK_STORE", "PYTHONPATH")
BUCKET, REGION = "lake", "eu-west-1"
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
            "KILLS": str(folder),
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

    def inbox(self) -> AbstractContextManager[None]:
        """Watch the lake until the end of the block."""
        return self.started("inbox", "watch", "lake", "--rules", str(HERE / "inbox.yaml"))

    def raw_objects(self) -> list[str]:
        """Return the raw objects that are not archived yet."""
        return [str(path) for path in (self.folder / "lake/raw").rglob("*.csv")]

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


class PlayOnAws(Play):
    """The same on an emulator of AWS: S3 notifies SQS, from which the worker itself takes the objects."""

    def __init__(self, folder: Path, url: str, endpoint: str) -> None:
        super().__init__(folder, url)
        aws = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "demo",
            "AWS_SECRET_ACCESS_KEY": "demo",
        }
        tables = "&".join(f"{name}=choreography-{name}" for name in ("control", "joblog", "rerun", "events"))
        self.environment |= {
            **aws,
            "LAKE": f"s3://{BUCKET}",
            "INTERLOCK_STORE": f"dynamodb://?{tables}&region={REGION}&endpoint={endpoint}",
            "INTERLOCK_JOB_ENVIRONMENT": ",".join((*PASSED_ON, *aws)),
            "INTERLOCK_SENSORS_QUEUE": self._make_bucket(endpoint),
            "INTERLOCK_INBOX": str(HERE / "inbox.yaml"),
            "INTERLOCK_ROLES": "engine,scheduler,sensors",
            "INTERLOCK_TIMING": "fast",
        }

    def _make_bucket(self, endpoint: str) -> str:
        """Make the bucket, and the queue that it notifies; return the queue's URL."""
        clients = {name: _client(name, endpoint) for name in ("s3", "sqs")}
        self._s3, sqs = clients["s3"], clients["sqs"]
        self._s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        queue = sqs.create_queue(QueueName=BUCKET)["QueueUrl"]
        found = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
        told = {"QueueArn": found["QueueArn"], "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}
        self._s3.put_bucket_notification_configuration(
            Bucket=BUCKET, NotificationConfiguration={"QueueConfigurations": [told]}
        )
        return queue

    def inbox(self) -> AbstractContextManager[None]:
        return nullcontext()  # the worker has the role

    def raw_objects(self) -> list[str]:
        found = self._s3.list_objects_v2(Bucket=BUCKET, Prefix="raw/").get("Contents", [])
        return [each["Key"] for each in found]


def _client(service: str, endpoint: str) -> Any:  # noqa: ANN401  made at run time
    from botocore.session import get_session  # noqa: PLC0415  only `--s3` needs it

    session = get_session()
    session.set_credentials("demo", "demo")
    return session.create_client(service, endpoint_url=endpoint, region_name=REGION)


@contextmanager
def emulated(program: str, folder: Path) -> Generator[str]:
    """Run an emulator of AWS until the end of the block; return its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1", "LOG_LEVEL": "WARNING"}
    with (folder / "emulator.log").open("w") as log:
        process = subprocess.Popen(  # noqa: S603  the emulator that was named
            [str(Path(program).resolve())], env={**os.environ, **settings}, stdout=log, stderr=log, cwd=folder
        )
    try:
        wait_for("the emulator", lambda: {"is": "there"} if _answers(port) else None)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


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


def play(folder: Path, *, kills: bool = True, emulator: str = "") -> dict[str, Any]:
    """Play all rounds; return the summaries of each. Raises if anything is lost, or repeated in vain."""
    with ExitStack() as stack:
        endpoint = stack.enter_context(emulated(emulator, folder)) if emulator else ""
        return _play(folder, endpoint, kills=kills)


def _play(folder: Path, endpoint: str, *, kills: bool) -> dict[str, Any]:
    world = World()
    world.put(*(bill(number) for number in range(OLD)))
    shutil.copytree(HERE / "jobs", folder / "jobs")
    shutil.copytree(HERE / "pipelines", folder / "pipelines")
    (folder / "lake").mkdir()
    with served(world) as url:
        it = PlayOnAws(folder, url, endpoint) if endpoint else Play(folder, url)
        say(f"{OLD} bills are in the graph already, and are seeded in the ledger of the first stage")
        single_pass(world, it.graph)
        it.interlock("store", "init")
        seeds = "".join(json.dumps({"id": each["id"], "hash": each["hash"]}) + "\n" for each in world.bills.values())
        it.interlock("ledger", "seed", "polled", typed=seeds)
        it.interlock("pipelines", "push", "pipelines/", "--yes")
        with it.started("run"), it.inbox():
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
            wait_for("the archive", lambda: None if it.raw_objects() else {"done": 1})
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
        emulator = sys.argv[sys.argv.index("--s3") + 1] if "--s3" in sys.argv else ""
        play(Path(folder), kills="--no-kills" not in sys.argv, emulator=emulator)
        say(f"took {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
