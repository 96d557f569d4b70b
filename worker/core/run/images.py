"""Images: what a record says of a sensor whose row speaks of another period by now, so that the row cannot decide.

Records are delivered again, and an image that was overtaken long ago must not pass for the latest word. Each sensor's
last content alone cannot tell: of two that were told, the first would be news again, and then the second.
"""

from collections.abc import Mapping
from datetime import datetime

from worker.core.time.skew import SKEW_MAX

TOLD_AT_MAX = 32


def is_old_image(image_at: datetime | None, *, read_at: datetime | None, told_at: datetime | None) -> bool:
    """Say whether something later than the image is known. `image_at` None: it is no image, but the row itself.

    `read_at` is when, at the earliest, we read the sensors for the start: by our clock, so that the store's may differ.
    `told_at` is when what was last told of this sensor was written, by the store's own clock. Of two that were written
    at the same time both are told: better twice than never.
    """
    if image_at is None:
        return False
    is_before_start = read_at is not None and image_at < read_at - SKEW_MAX
    return is_before_start or (told_at is not None and image_at < told_at)


def noted(told_at: Mapping[str, datetime], sensor_key: str, at: datetime | None) -> dict[str, datetime]:
    """Remember when what is told now was written, of the sensors told of last. `at` None: nobody knows when."""
    others = {key: told for key, told in told_at.items() if key != sensor_key}
    latest = max((told for told in (at, told_at.get(sensor_key)) if told is not None), default=None)
    if latest is None:
        return others
    return dict([*others.items(), (sensor_key, latest)][-TOLD_AT_MAX:])
