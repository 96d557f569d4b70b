"""Stage 1: get all bills from the API, and write those that changed as CSV."""

import csv
import io
import os

from lake import PERIOD, Client, changed, save, summary, write


def main() -> None:
    api, bills, page = Client(os.environ["API"]), [], 0
    while found := api.call(f"/bills?page={page}"):
        bills += found
        page += 1
    news = changed("polled", bills)
    table = io.StringIO()
    rows = csv.DictWriter(table, ["id", "hash", "title", "text"])
    rows.writeheader()
    rows.writerows(news)
    write(f"raw/dt={PERIOD}/bills.csv", table.getvalue())
    save("polled", news, "poll")  # last: after a crash before this, the same bills are written again
    summary(len(bills), len(news))


main()
