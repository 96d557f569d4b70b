"""An evaluator for a command probe: JSON in, JSON out. Replace `count_rows` by a question of your own."""

import json
import sys


def count_rows(period: str) -> int:
    """Count the rows of a period, for example in a database; here, a number that depends on the day."""
    return 900 + 10 * int(period[8:10])


request = json.load(sys.stdin)
rows, least = count_rows(request["period"]), request["config"]["least"]
enough = rows >= least
print(
    json.dumps(
        {
            "status": "PASS" if enough else "FAIL",
            "value": rows,
            "reason": "" if enough else f"{rows} of at least {least} rows",
        }
    )
)
