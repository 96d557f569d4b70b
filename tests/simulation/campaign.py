"""`make simulate-campaign`: thousands of histories of many sizes, each in a process of its own.

Each history is one line of a file, written when it ends; a campaign that goes on skips the seeds that are there.
"""

import argparse
import multiprocessing
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, Protocol

import msgspec

from tests.simulation.__main__ import be_quiet, replay
from tests.simulation.plan import Plan
from tests.simulation.sampler import campaign_plan
from tests.simulation.violations import Violated
from tests.simulation.world import simulate
from worker.runtime import gc_tuning

MEGABYTES_MAX: Final = 2048  # address space of one history; the largest need a quarter of it
TELL_EVERY_S: Final = 30.0
_FORK: Final = multiprocessing.get_context("fork")  # what is imported once is there in each


class Verdict(StrEnum):
    HELD = "held"
    VIOLATED = "violated"
    BROKEN = "broken"  # the simulation itself ended with an error, or was too large
    TOO_LONG = "too-long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One history in the file."""

    seed: int
    pipelines: int
    hours: int
    workers: int
    beat: str
    is_varied: bool
    verdict: Verdict
    cpu_s: float = 0.0
    commits: int = 0
    jobs: int = 0
    digest: str = ""
    problem: str = ""

    @property
    def size_class(self) -> str:
        pipelines, hours = _class(self.pipelines, 3, 6, 11, 21), _class(self.hours, 6, 13, 25, 49)
        return f"{pipelines:>5} pipelines, {hours:>5} h, {self.beat} beat"


class _Answer(Protocol):
    """The end of a pipe on which one line comes."""

    def poll(self) -> bool: ...
    def recv(self) -> Line: ...
    def close(self) -> None: ...
    def fileno(self) -> int: ...


@dataclass(slots=True)
class _Playing:
    plan: Plan
    process: BaseProcess
    answer: _Answer
    ends_at: float

    def result(self) -> Line | None:
        """What came of it; None while it plays."""
        # The limit comes first: whether a history that ended past it is seen in time must not decide.
        if time.monotonic() > self.ends_at:
            return _line(self.plan, Verdict.TOO_LONG, problem="it was given up; raise --seconds if it is only slow")
        if self.answer.poll():
            try:
                return self.answer.recv()
            except EOFError:
                return _line(self.plan, Verdict.BROKEN, problem=f"its process ended ({self.process.exitcode})")
        return None

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.answer.close()


@dataclass(slots=True)
class Campaign:
    file: Path
    seconds_max: float
    lines: list[Line] = field(default_factory=list[Line])
    _playing: list[_Playing] = field(default_factory=list[_Playing])

    def play(self, seeds: range, processes: int) -> None:
        known = {line.seed for line in self.lines}
        _end_last_line(self.file)
        todo = iter([seed for seed in seeds if seed not in known])
        told_at = began_at = time.monotonic()
        before = len(self.lines)
        try:
            while self._begin(todo, processes):
                wait([each.answer.fileno() for each in self._playing], timeout=1.0)
                self._collect()
                if time.monotonic() - told_at > TELL_EVERY_S:
                    told_at = time.monotonic()
                    rate = (len(self.lines) - before) / (told_at - began_at) * 60
                    _say(f"{len(self.lines)} of {len(seeds)} histories, {len(self.bad)} bad, {rate:.1f} a minute")
        finally:
            for each in self._playing:
                each.close()

    @property
    def bad(self) -> list[Line]:
        return [line for line in self.lines if line.verdict is not Verdict.HELD]

    def _begin(self, todo: Iterator[int], processes: int) -> bool:
        """Keep all processes busy; False once nothing is left."""
        while len(self._playing) < processes and (seed := next(todo, None)) is not None:
            plan, (ours, theirs) = campaign_plan(seed), Pipe(duplex=False)
            process = _FORK.Process(target=_play, args=(plan, theirs), name=f"history {seed}")
            process.start()
            theirs.close()
            self._playing.append(_Playing(plan, process, ours, time.monotonic() + self.seconds_max))
        return bool(self._playing)

    def _collect(self) -> None:
        for each in list(self._playing):
            line = each.result()
            if line is not None:
                each.close()
                self._playing.remove(each)
                self._note(line)

    def _note(self, line: Line) -> None:
        self.lines.append(line)
        with self.file.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        if line.verdict is not Verdict.HELD:
            _tell_bad(line)


def main() -> int:
    asked = _arguments()
    be_quiet()
    gc_tuning.freeze_startup_objects()  # for all histories, which begin as copies of this process
    signal.signal(signal.SIGTERM, _stop)
    seeds = range(asked.seed, asked.seed + asked.seeds)
    campaign = Campaign(asked.file, asked.seconds, [line for line in read_lines(asked.file) if line.seed in seeds])
    if campaign.lines:
        _say(f"{len(campaign.lines)} of {len(seeds)} histories are in {asked.file} already")
    try:
        campaign.play(seeds, asked.processes)
    except (KeyboardInterrupt, _Stopped):
        _say("stopped; the same command goes on from here")
    _tell_classes(campaign.lines)
    for line in campaign.bad:
        _tell_bad(line)
    return 1 if campaign.bad else 0


class _Stopped(Exception):
    """Somebody ended the campaign: so end the histories that play."""


def _stop(*_: object) -> None:
    raise _Stopped


# --- one history ------------------------------------------------------------------------------------------------------


def _play(plan: Plan, answer: Connection) -> None:
    """Play one history in a process of its own, and say what came of it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the campaign ends its histories itself
    limit = MEGABYTES_MAX * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        report = simulate(plan)
    except Violated as violated:
        line = _line(plan, Verdict.VIOLATED, problem=str(violated))
    except Exception as error:  # noqa: BLE001  whatever it is, the campaign goes on and tells of it
        line = _line(plan, Verdict.BROKEN, problem=repr(error))
    else:
        line = _line(plan, Verdict.HELD, commits=report.commits, jobs=report.jobs, digest=report.digest)
    answer.send(replace(line, cpu_s=round(time.process_time(), 2)))


def _line(
    plan: Plan, verdict: Verdict, *, commits: int = 0, jobs: int = 0, digest: str = "", problem: str = ""
) -> Line:
    return Line(
        seed=plan.seed,
        pipelines=plan.pipelines,
        hours=plan.hours,
        workers=plan.workers,
        beat=plan.beat.value,
        is_varied=plan.is_varied,
        verdict=verdict,
        commits=commits,
        jobs=jobs,
        digest=digest,
        problem=problem,
    )


def _class(number: int, *ends: int) -> str:
    """Name the range of a number by its ends, as in 6-10."""
    least, most = next(((least, most) for least, most in pairwise(ends) if number < most), (0, ends[-1]))
    return f"{least}-{most - 1}"


# --- what is told -----------------------------------------------------------------------------------------------------


def read_lines(file: Path) -> Iterator[Line]:
    """The histories of a file; a line that a kill left unfinished is played again."""
    for text in file.read_bytes().splitlines() if file.exists() else []:
        with suppress(msgspec.DecodeError):
            yield msgspec.json.decode(text, type=Line)


def _end_last_line(file: Path) -> None:
    """Let the next line begin on its own, also after one that a kill left unfinished."""
    if file.exists() and not file.read_bytes().endswith(b"\n"):
        with file.open("ab") as lines:
            lines.write(b"\n")


def _tell_bad(line: Line) -> None:
    _say(f"seed {line.seed} {line.verdict}: {line.problem}\n  replay it with: {replay(campaign_plan(line.seed))}")


def _tell_classes(lines: list[Line]) -> None:
    for name in sorted({line.size_class for line in lines}):
        of_class = [line for line in lines if line.size_class == name]
        bad = sum(line.verdict is not Verdict.HELD for line in of_class)
        cpu_s = sum(line.cpu_s for line in of_class)
        _say(f"{name}: {len(of_class)} histories, {bad} bad, {cpu_s:.0f} s")
    workers = {number: sum(line.workers == number for line in lines) for number in range(2, 6)}
    bad = sum(line.verdict is not Verdict.HELD for line in lines)
    _say(f"all: {len(lines)} histories, {bad} bad; by workers {workers}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make simulate-campaign", description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="the first seed")
    parser.add_argument("--seeds", type=int, required=True, help="how many")
    parser.add_argument("--processes", type=int, default=1, help="at once")
    parser.add_argument("--seconds", type=float, default=1800.0, help="that one history may take")
    parser.add_argument(
        "--file", type=Path, required=True, help="one line for each history; a campaign goes on from it"
    )
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, file=sys.stdout, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
