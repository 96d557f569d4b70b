"""Ids: the names of pipelines and of their schedules.

They have a module of their own, because keys of rows need them and not what a pipeline is made of.
"""

from typing import NewType

PipelineId = NewType("PipelineId", str)
ScheduleId = NewType("ScheduleId", str)

# The Lambda edition names the single schedule of a file after what starts it; rows in existing tables carry these
# names.
CRON_SCHEDULE = ScheduleId("cron")
STREAM_SCHEDULE = ScheduleId("stream")
