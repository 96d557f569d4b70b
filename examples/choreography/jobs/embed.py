"""Stage 3: turn classified bills into chunks, and upsert them by key into the graph."""

import json
import os

from graph import Graph, chunks_of
from lake import PERIOD, changed, checkpoints, read, save, summary


def main() -> None:
    bills = [json.loads(line) for _, text in read(f"processed/dt={PERIOD}/*.ndjson") for line in text.splitlines()]
    news = changed("embedded", bills)
    graph = Graph(os.environ["GRAPH"])
    for batch in checkpoints(news):
        graph.upsert((each, chunks_of(each)) for each in batch)
        save("embedded", batch, "embed")
    summary(len(bills), len(news))


main()
