"""Convert an hour of orders, and say how much of the day is there."""

import json
import sys
from decimal import Decimal

from lake import ATTEMPT, DAY, LAKE, PERIOD, read, report, write

RATE = Decimal("1.08")
TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h: a failure that may well be over the next time

if PERIOD.endswith("T01") and ATTEMPT == 1:
    print("the exchange rates are not available", file=sys.stderr)
    sys.exit(TRY_AGAIN)

orders = [{"id": order["id"], "amount": str(Decimal(order["amount"]) * RATE)} for order in read("bronze", PERIOD)]
write("silver", orders)
hours = [json.loads(path.read_text()) for path in (LAKE / "silver").glob(f"{DAY}T*.json")]
rows = sum(len(hour) for hour in hours)
print(f"{len(orders)} orders of {PERIOD} are converted; {DAY} has {rows} by now")
report("gold-orders", "silver-day", DAY, hours=len(hours), rows=rows)
