"""Take an hour of orders in: each once, however often the shop wrote it."""

import csv

from lake import LAKE, PERIOD, write

with (LAKE / "landing" / f"{PERIOD}.csv").open() as landed:
    orders = {order["id"]: order for order in csv.DictReader(landed)}
write("bronze", list(orders.values()))
print(f"{len(orders)} orders of {PERIOD} are in")
