"""Run the benchmarks by name (`python -m bench rules sqlite`), or all of them.

Each gives ratios against a named peer measured in the same run; absolute figures are only as good as the machine.
`costs`, `ledger` and `probes` are no races: they count what is asked of AWS and of probed endpoints, or state
what a ledger of 50,000 records costs.
"""

import importlib
import sys

NAMES = (
    "rules",
    "configs",
    "push",
    "sqlite",
    "store",
    "dynamodb",
    "engine",
    "burst",
    "herd",
    "adoption",
    "dependencies",
    "queues",
    "streams",
    "relay",
    "polls",
    "cli",
    "runs",
    "sensors",
    "ledger",
    "web",
    "probes",
    "costs",
)


def main() -> int:
    wanted = sys.argv[1:] or list(NAMES)
    if unknown := sorted(set(wanted) - set(NAMES)):
        print(f"no benchmark called {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in wanted:
        print(f"\n== {name}", flush=True)
        importlib.import_module(f"bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
