"""Stage 2: let a model classify the bills of a raw object, and write them in parts with a marker at the end."""

import csv
import json
import os

from lake import PERIOD, Client, changed, checkpoints, read, save, summary, write

BATCH = 20


def main() -> None:
    model = Client(os.environ["MODEL"])
    bills = [row for _, text in read(f"raw/dt={PERIOD}/*.csv") for row in csv.DictReader(text.splitlines())]
    news = changed("classified", bills)
    for batch in checkpoints(news):
        lines = []
        for at in range(0, len(batch), BATCH):
            some = batch[at : at + BATCH]
            topics = model.call("/classify", [each["text"] for each in some])
            lines += [json.dumps({**each, "topic": topic}) for each, topic in zip(some, topics, strict=True)]
        # Named by its first record: a repeat after a crash replaces the part.
        write(f"processed/dt={PERIOD}/part-{batch[0]['id']}.ndjson", "\n".join(lines))
        save("classified", batch, "classify")
    write(f"processed/dt={PERIOD}/_SUCCESS", "")
    summary(len(bills), len(news))


main()
