"""How pipelines are divided into slices of cron."""

import random
from collections import Counter

from scheduler.cron.slices import ALL_SLICES, SLICES, slice_of
from worker.core.model.ids import PipelineId


def test_a_pipeline_is_always_in_the_same_slice() -> None:
    # Workers of different versions divide alike: these are part of the store's format.
    assert [slice_of(PipelineId(name)) for name in ("orders", "daily", "p0001", "warehouse-refresh")] == [4, 6, 9, 8]


def test_two_workers_share_a_herd_and_so_do_four_however_the_slices_are_placed() -> None:
    herd = Counter(slice_of(PipelineId(f"herd-{number:04d}")) for number in range(2000))
    draw = random.Random(1)
    assert set(herd) == ALL_SLICES

    for _ in range(300):
        placed = draw.sample(sorted(ALL_SLICES), SLICES)
        two = [sum(herd[each] for each in placed[part::2]) / 2000 for part in range(2)]
        four = [sum(herd[each] for each in placed[part::4]) / 2000 for part in range(4)]
        assert max(two) <= 0.55
        assert max(four) <= 1 / 3  # the last of four is done in a third of the time of one
