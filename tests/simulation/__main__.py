"""`make simulate`: as many histories as asked for, each from its own seed, and how many a minute there were."""

import argparse
import logging
import sys
import time
from collections import Counter
from functools import partial

import structlog

from tests.simulation.plan import Beat, Plan
from tests.simulation.sampler import plan_of
from tests.simulation.violations import Violated
from tests.simulation.world import simulate


def main() -> int:
    asked = _arguments()
    be_quiet()
    began, failed, runs = time.perf_counter(), 0, Counter[str]()
    for seed in range(asked.seed, asked.seed + asked.seeds):
        plan = _plan(seed, asked)
        try:
            report = simulate(plan, partial(_tell_hour, plan))
        except Violated as violated:
            failed += 1
            _say(f"seed {seed}: {violated}\n  replay it with: {replay(plan)}")
        else:
            runs.update(report.runs)
            _say(f"seed {seed}: {report.commits} commits, {report.jobs} jobs, runs {dict(report.runs)}")
    minutes = (time.perf_counter() - began) / 60
    _say(f"{asked.seeds} seeds, {failed} failed, {asked.seeds / minutes:.1f} seeds per minute; all runs: {dict(runs)}")
    return 1 if failed else 0


def be_quiet() -> None:
    """Workers in trouble say so at length; here only the invariants speak."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def replay(plan: Plan) -> str:
    """The command that plays exactly this history again."""
    return f"make simulate {plan} SEEDS=1"


def _tell_hour(plan: Plan, hour: int, commits: int) -> None:
    """A large history takes minutes: show on a terminal how far it is, in one line."""
    if sys.stderr.isatty():
        end = "\n" if hour == plan.hours else ""
        said = f"\rseed {plan.seed}: hour {hour} of {plan.hours}, {commits} commits"
        print(said, end=end, file=sys.stderr, flush=True)


def _plan(seed: int, asked: argparse.Namespace) -> Plan:
    return plan_of(
        seed,
        pipelines=asked.pipelines,
        hours=asked.hours,
        workers=asked.workers,
        beat=Beat(asked.beat),
        downstreams=asked.downstreams,
        probes=asked.probes,
        is_varied=asked.varied,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after another")
    parser.add_argument("--pipelines", type=int, default=50)
    parser.add_argument("--hours", type=int, default=72, help="simulated")
    parser.add_argument("--workers", type=int, help="2 to 5; without it the seed decides")
    parser.add_argument("--downstreams", type=int, default=0, help="pipelines that run after others, besides those")
    parser.add_argument("--probes", type=int, default=0, help="of the pipelines, how many wait for a probe, too")
    parser.add_argument("--beat", choices=list(Beat), default=Beat.REAL, help="slow: as most tests have it")
    parser.add_argument("--varied", action="store_true", help="draw pace and faults from the seed, too")
    return parser.parse_args()


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
