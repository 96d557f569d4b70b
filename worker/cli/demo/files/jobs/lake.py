"""The demo's lake: a directory per layer, a file per hour or day; jobs report what they made."""

import json
import os
import subprocess
from pathlib import Path

LAKE = Path("lake")
PERIOD = os.environ["INTERLOCK_PERIOD"]  # 2027-03-22T07, or 2027-03-22: the period that the job is for
DAY = PERIOD.partition("T")[0]
ATTEMPT = int(os.environ["INTERLOCK_ATTEMPT"])

Order = dict[str, str]


def read(layer: str, period: str) -> list[Order]:
    return json.loads((LAKE / layer / f"{period}.json").read_text())


def write(layer: str, content: object) -> None:
    """Replace the file whole: an attempt that is repeated leaves what one would."""
    path = LAKE / layer / f"{PERIOD}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(content, indent=1))
    unfinished.rename(path)


def report(pipeline: str, sensor: str, period: str, **fields: object) -> None:
    """Write a sensor of another pipeline, with the same command that a person would use."""
    words = [f"{name}={value}" for name, value in fields.items()]
    command = ["interlock", "sensor", "put", pipeline, sensor, *words, "--period", period]
    subprocess.run(command, check=True)  # noqa: S603  no shell, and every word is ours
