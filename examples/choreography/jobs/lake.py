"""What the three stages share: objects of the lake, the ledger, and one client that throttles, times out and retries.

The lake is a folder, or a bucket if LAKE is `s3://BUCKET`.
"""

import fnmatch
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

LAKE = os.environ.get("LAKE", "lake")
DONE = "done/"  # where Interlock archives what a completed run used
PERIOD = os.environ.get("INTERLOCK_PERIOD", "")
CHECKPOINT = 100
INTERLOCK = [sys.executable, "-c", "from worker.cli.main import main; main()"]

Record = dict[str, Any]


class Folder:
    """Objects as files."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, key: str, text: str) -> None:
        """Write an object whole or not at all: the inbox leaves out names that end in .tmp."""
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.tmp")
        unfinished.write_text(text)
        unfinished.replace(path)

    def keys(self, prefix: str) -> list[str]:
        return [path.relative_to(self._root).as_posix() for path in (self._root / prefix).glob("*") if path.is_file()]

    def read(self, key: str) -> str:
        return (self._root / key).read_text()


class Bucket:
    """Objects in S3, with the library that Interlock itself has installed."""

    def __init__(self, name: str) -> None:
        from botocore.session import get_session  # noqa: PLC0415  only this kind of lake needs it

        self._name, self._s3 = name, get_session().create_client("s3")

    def write(self, key: str, text: str) -> None:
        self._s3.put_object(Bucket=self._name, Key=key, Body=text.encode())

    def keys(self, prefix: str) -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._name, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", [])]

    def read(self, key: str) -> str:
        return self._s3.get_object(Bucket=self._name, Key=key)["Body"].read().decode()


def lake() -> Folder | Bucket:
    return Bucket(LAKE.removeprefix("s3://")) if LAKE.startswith("s3://") else Folder(Path(LAKE))


def write(key: str, text: str) -> None:
    lake().write(key, text)


def read(pattern: str) -> list[tuple[str, str]]:
    """Return objects by name: where they arrived, or where an earlier completed run archived them."""
    place, prefix = lake(), f"{pattern.rpartition('/')[0]}/"
    found: dict[str, str] = {}
    for where in (DONE, ""):
        keys = fnmatch.filter(place.keys(f"{where}{prefix}"), f"{where}{pattern}")
        found.update({key.rpartition("/")[2]: key for key in keys})
    return [(name, place.read(found[name])) for name in sorted(found)]


# --- the ledger -------------------------------------------------------------------------------------------------------


def changed(ledger: str, records: Iterable[Record]) -> list[Record]:
    """Return the records that are new or changed since they were last saved."""
    return [json.loads(line) for line in _ledger("diff", ledger, records).splitlines()]


def save(ledger: str, records: Iterable[Record], stage: str) -> None:
    """Save records as processed. Their results must be stored before."""
    _die_if_asked(stage)
    _ledger("commit", ledger, ({"id": each["id"], "hash": each["hash"]} for each in records))


def _ledger(action: str, name: str, records: Iterable[Record]) -> str:
    lines = "".join(json.dumps(each) + "\n" for each in records)
    done = subprocess.run(  # noqa: S603  our own words
        [*INTERLOCK, "ledger", action, name], input=lines, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"ledger {action} {name}: {done.stderr}")
    return done.stdout


def checkpoints(records: list[Record]) -> Iterator[list[Record]]:
    """Yield the records in batches, each of which is saved on its own."""
    return (records[at : at + CHECKPOINT] for at in range(0, len(records), CHECKPOINT))


def _die_if_asked(stage: str) -> None:
    """Kill this process once, if the example asks for it: after the work of a checkpoint, before it is saved."""
    wish = Path(os.environ.get("KILLS", ".")) / f"kill-{stage}"
    if not wish.exists():
        return
    saves_left = int(wish.read_text())
    if saves_left:
        wish.write_text(str(saves_left - 1))
    else:
        wish.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def summary(seen: int, processed: int, errored: int = 0) -> None:
    """Print the last line of the job, which Interlock keeps as its summary."""
    print(json.dumps({"seen": seen, "processed": processed, "skipped": seen - processed - errored, "errored": errored}))


# --- one client for all calls -----------------------------------------------------------------------------------------


class Client:
    """Calls one service: at most `rate` calls a second, a time limit for each, and bounded retries."""

    def __init__(self, url: str, rate: float = 50.0, timeout_s: float = 2.0, tries: int = 8) -> None:
        self._url, self._pause_s, self._timeout_s, self._tries = url, 1 / rate, timeout_s, tries

    def call(self, path: str, body: object = None) -> Any:  # noqa: ANN401  whatever the service answers
        data = None if body is None else json.dumps(body).encode()
        for attempt in range(1, self._tries + 1):
            time.sleep(self._pause_s)
            try:
                request = urllib.request.Request(f"{self._url}{path}", data)  # noqa: S310  a server of the example
                with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:  # noqa: S310
                    return json.load(answer)
            except urllib.error.HTTPError as refused:
                if refused.code not in {429, 500, 503} or attempt == self._tries:
                    raise
            except (TimeoutError, urllib.error.URLError):
                if attempt == self._tries:
                    raise
            time.sleep(random.uniform(0.0, min(2.0, 0.05 * 2**attempt)))  # noqa: S311  no secret depends on it
        raise AssertionError("unreachable")
