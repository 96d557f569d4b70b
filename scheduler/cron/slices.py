"""Divide the pipelines into slices, so that several workers share the cron times."""

from typing import Final, NewType

from worker.core.model.ids import PipelineId
from worker.core.model.keys import bucket

CronSlice = NewType("CronSlice", int)

# All workers of a group must divide alike: with another number, a slice would have other pipelines.
SLICES: Final = 32
ALL_SLICES: Final = frozenset(CronSlice(number) for number in range(SLICES))


def slice_of(pipeline: PipelineId) -> CronSlice:
    return CronSlice(bucket(pipeline, SLICES))
