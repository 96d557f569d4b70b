"""What is still under way can be waited for by name, and ended."""

from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from worker.runtime.concurrency import TrackedTaskGroup


@on_virtual_time
async def test_only_tasks_of_that_name_are_waited_for_and_not_for_ever() -> None:
    clock = VirtualClock()
    async with TrackedTaskGroup() as tasks:
        quick = tasks.create_task(clock.sleep(2), name="start:quick")
        slow = tasks.create_task(clock.sleep(100), name="start:slow")
        tasks.create_task(clock.sleep(1000), name="FindJob:other")

        await tasks.wait_for("start:", timeout_s=4)
        assert (clock.monotonic(), quick.done(), slow.done()) == (4, True, False)
        await tasks.wait_for("none:", timeout_s=4)
        assert clock.monotonic() == 4

        tasks.end_all()
    assert slow.cancelled()
    assert clock.monotonic() == 4
