"""What the tests of both stream adapters write, read and wait for: one row by its value, and a day until it is gone."""

from datetime import timedelta

from consumers.source import Batch
from worker.store.table import Change, Key, Value

ROW = Key("PIPELINE#orders", "SENSOR#orders")
DAY = timedelta(hours=24, seconds=1)


def values(batch: Batch) -> list[Value]:
    return [value_of(record.change) for record in batch.records]


def value_of(change: Change) -> Value:
    assert change.image is not None
    return change.image["value"]
