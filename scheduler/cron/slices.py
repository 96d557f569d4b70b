"""Divide the pipelines into slices, so that several workers share the cron times."""

from typing import Final, NewType

from worker.core.model.ids import PipelineId
from worker.core.model.keys import bucket

CronSlice = NewType("CronSlice", int)

# Sixteen workers can share them. All workers of a group must divide alike: a slice is always of the same pipelines.
SLICES: Final = 16
ALL_SLICES: Final = frozenset(CronSlice(number) for number in range(SLICES))


def slice_of(pipeline: PipelineId) -> CronSlice:
    return CronSlice(bucket(pipeline, SLICES))
