"""Run jobs at their times by APScheduler on the injected clock. No other module imports the library.

The library asks for the time by `datetime.now(zone)`, and a time zone may answer with any time. So its scheduler runs
on the clock that it is given, real or virtual, and nothing of it is patched. It keeps its jobs in memory only: rows
are the source of truth, and a job is lost with the process that may run it.
"""

# The library has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias, cast

from apscheduler import events
from apscheduler.executors.base import BaseExecutor, MaxInstancesReachedError
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from worker.core.errors import WorkerError
from worker.runtime.clock import Clock

# Wall clocks are set, and no timer notices: the scheduler looks at its clock at least this often.
WAIT_MAX_S: Final = 5.0
REFUSED_RETRY: Final = timedelta(seconds=5)  # after this time, a job that could not start is due again
AT_ONCE_MAX: Final = 64  # jobs of one scheduler that run concurrently
STARTED_IN_A_ROW_MAX: Final = 200  # jobs; then other tasks of the loop get a turn

# Receives the time at which it came due here. It may start later, when jobs before it have had their turn.
Work: TypeAlias = Callable[[datetime], Coroutine[Any, Any, None]]
# Returns the next time after the given one; None: there is none, and the job ends.
NextTime: TypeAlias = Callable[[datetime], datetime | None]
Now: TypeAlias = Callable[[], datetime]


class JobScope:
    """JobScope is what jobs run under, such as a held lease: they are tasks of its group, and end with it.

    No job starts when `may_act` returns False, or after `close`.
    """

    def __init__(self, group: asyncio.TaskGroup, may_act: Callable[[], bool]) -> None:
        self.group, self.may_act = group, may_act
        self.is_closed = False

    def may_start(self) -> bool:
        """Return whether a job may start now. One under way asks `may_act`: it may finish after `close`."""
        return not self.is_closed and self.may_act()

    def close(self) -> None:
        self.is_closed = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """JobEnd says how late a job started, how long it took, and what went wrong, if anything."""

    name: str
    late_s: float
    took_s: float
    problem: WorkerError | None = None


@dataclass(frozen=True, slots=True)
class JobOverrun:
    """JobOverrun: a job was due again while it still ran. It is due again at its next time."""

    name: str


OnJob: TypeAlias = Callable[[JobEnd | JobOverrun], None]


def ignore_job(_: JobEnd | JobOverrun) -> None:
    """Record nothing."""


class SteadyTime:
    """SteadyTime is the wall time of its creation plus the time that passed since: nobody can set it."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._began_at, self._began_s = clock, clock.now(), clock.monotonic()

    def __call__(self) -> datetime:
        return self._began_at + timedelta(seconds=self._clock.monotonic() - self._began_s)


class JobScheduler:
    """Runs each job at its times, never twice at once. Several missed times are one, and none is dropped.

    `now` is the time by which jobs are due. A `WorkerError` of a job is given to `on_job`; the job runs again at its
    next time. Any other error ends the group of the job.
    """

    def __init__(self, clock: Clock, now: Now, *, on_job: OnJob = ignore_job, at_once_max: int = AT_ONCE_MAX) -> None:
        self._now, self._is_stopped = now, False
        self._executor = _GroupExecutor(clock, now, at_once_max)
        # The library has no types.
        self._scheduler = cast(
            "Any",
            _ClockedScheduler(
                clock,
                now,
                timezone=_ClockZone(now),
                executors={"default": self._executor},
                jobstores={"default": _BoundedStore()},
                job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
                logger=_QUIET,
            ),
        )
        self._scheduler.add_listener(
            partial(_tell, on_job), events.EVENT_JOB_EXECUTED | events.EVENT_JOB_ERROR | events.EVENT_JOB_MAX_INSTANCES
        )

    def every(self, name: str, interval: timedelta, work: Work, scope: JobScope, *, after: timedelta) -> None:
        """Run a job `after` this time from now, then at its interval."""
        begin = self._now() + after
        self._add(name, _Interval(interval), work, scope, begin)

    def at(self, name: str, next_time: NextTime, work: Work, scope: JobScope, first: datetime) -> None:
        """Run a job at `first`, then at the times that `next_time` returns. This replaces a job of that name.

        If it is due while it still runs, it runs again right after that.
        """
        self._add(name, _Times(next_time), work, scope, first)

    def move(self, name: str, to: datetime) -> None:
        """Run a job at another time than it said. Does nothing if there is no such job."""
        if self._scheduler.get_job(name) is not None:
            self._scheduler.modify_job(name, next_run_time=to.astimezone(UTC))

    def hasten(self, name: str, within: timedelta) -> None:
        """Run a job this much later from now, unless it is due before that."""
        due_at, at = self.next_time(name), self._now() + within
        if due_at is not None and due_at > at:
            self.move(name, at)

    def remove(self, name: str) -> None:
        """Run a job no more. Does nothing if there is no such job; a run of it under way continues."""
        if self._scheduler.get_job(name) is not None:
            self._scheduler.remove_job(name)
            self._executor.forget(name)

    def next_time(self, name: str) -> datetime | None:
        """Return when a job is due next; None if there is no such job."""
        job = self._scheduler.get_job(name)
        return None if job is None else job.next_run_time.astimezone(UTC)

    def __len__(self) -> int:
        return len(self._scheduler.get_jobs())

    def look(self) -> None:
        """Start what is due now, without waiting for the timer."""
        self._scheduler.look()

    def stop(self) -> None:
        """Remove all jobs and timers, and accept no more. Jobs under way continue in their groups."""
        self._is_stopped = True
        self._executor.forget_waiting()
        if self._scheduler.running:
            self._scheduler.remove_all_jobs()
            self._scheduler.stop_timer()

    def _add(self, name: str, trigger: BaseTrigger, work: Work, scope: JobScope, first: datetime) -> None:
        if self._is_stopped:
            return
        if not self._scheduler.running:
            self._scheduler.start()
        self._scheduler.add_job(
            work,
            trigger,
            id=name,
            name=name,
            args=(first,),  # the executor passes the time itself
            next_run_time=first.astimezone(UTC),
            replace_existing=True,
        )
        self._executor.scopes[name] = scope


# The library reports each job at `info`, and a slow one at `warning`: our own records say both.
_QUIET: Final = logging.getLogger("interlock.apscheduler")
_QUIET.setLevel(logging.ERROR)


class _ClockZone(tzinfo):
    """_ClockZone is UTC by the injected clock: `datetime.now(zone)` returns that clock's time.

    It must not be used to convert a time, because every conversion into it returns the current time.
    """

    def __init__(self, now: Now) -> None:
        self._now = now

    def utcoffset(self, _: datetime | None, /) -> timedelta:
        return timedelta(0)

    def dst(self, _: datetime | None, /) -> timedelta:
        return timedelta(0)

    def tzname(self, _: datetime | None, /) -> str:
        return "UTC"

    def fromutc(self, _: datetime, /) -> datetime:
        return self._now().astimezone(UTC).replace(tzinfo=self)


class _Interval(BaseTrigger):
    """_Interval keeps its distance to the last due time; if that has passed, it begins from now."""

    __slots__ = ("_interval",)
    catches_up = False

    def __init__(self, interval: timedelta) -> None:
        self._interval = interval

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> Any:  # noqa: ANN401  untyped
        following = (previous_fire_time or now) + self._interval
        return following if following > now else now.astimezone(UTC) + self._interval


class _Times(BaseTrigger):
    """_Times returns the next time after now, so that times that passed meanwhile are one."""

    __slots__ = ("_last", "_next_time")
    catches_up = True

    def __init__(self, next_time: NextTime) -> None:
        self._next_time = next_time
        self._last: tuple[datetime, datetime | None] | None = None

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> Any:  # noqa: ANN401  untyped
        since = max(previous_fire_time or now, now).astimezone(UTC)
        if self._last is None or self._last[0] != since:  # the library asks twice for each time
            self._last = since, self._next_time(since)
        return self._last[1]


class _BoundedStore(MemoryJobStore):
    """_BoundedStore returns a few due jobs at a time, so that ten thousand of them do not stop the loop."""

    def get_due_jobs(self, now: datetime) -> list[Any]:
        due_by = now.timestamp()
        due = islice(self._jobs, STARTED_IN_A_ROW_MAX)
        return [job for job, timestamp in due if timestamp is not None and timestamp <= due_by]


class _ClockedScheduler(AsyncIOScheduler):
    """_ClockedScheduler sets its timer on the injected clock, and none while it has no job."""

    def __init__(self, clock: Clock, now: Now, **options: Any) -> None:  # noqa: ANN401  the library's own
        super().__init__(**options)
        self._clock, self._now = clock, now
        self._timer: asyncio.TimerHandle | None = None
        self._is_awake = False

    def wakeup(self) -> None:
        """Look for due jobs in the next turn of the loop, once for all calls before it."""
        if not self._is_awake:
            self._is_awake = True
            self._start_timer(0)

    def look(self) -> None:
        """Start the due jobs and set the timer for the next one."""
        self._is_awake = False
        wait_s = self._wait_s()
        if wait_s == 0:
            self._process_jobs()  # the wait that it returns is wrong here: it converts a time into our zone
            wait_s = self._wait_s()
        self._start_timer(wait_s)

    def stop_timer(self) -> None:
        self._start_timer(None)

    def _start_timer(self, wait_seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait_seconds is not None:
            self._timer = self._clock.call_later(wait_seconds, self.look)

    def _wait_s(self) -> float | None:
        if self._is_awake:
            return 0.0
        first = cast("datetime | None", self._lookup_jobstore("default").get_next_run_time())
        if first is None:
            return None
        return min(max((first - self._now()).total_seconds(), 0.0), WAIT_MAX_S)


class _GroupExecutor(BaseExecutor):
    """_GroupExecutor runs each job as a task of its scope's group, in the order in which they are due."""

    def __init__(self, clock: Clock, now: Now, at_once_max: int) -> None:
        super().__init__()
        self.scopes: dict[str, JobScope] = {}
        self._clock, self._time, self._at_once_max = clock, now, at_once_max
        self._waiting: deque[_Turn] = deque()
        self._running = 0
        self._is_starting = False
        self._overrun: set[str] = set()

    def submit_job(self, job: Any, run_times: list[datetime]) -> None:  # noqa: ANN401  the library's own
        try:
            super().submit_job(job, run_times)
        except MaxInstancesReachedError:
            if job.trigger.catches_up:
                self._overrun.add(job.id)
            raise

    def forget(self, name: str) -> None:
        """Keep nothing about a job that was removed, unless it still runs or waits for its turn."""
        if name not in self._instances:
            self.scopes.pop(name, None)

    def forget_waiting(self) -> None:
        """Start none of the jobs that wait for their turn."""
        while self._waiting:
            self._end(self._waiting.popleft().job)

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:  # noqa: ANN401  the library's own
        self._waiting.append(_Turn(job, run_times[-1], self._time()))
        if not self._is_starting:
            # In the next turn of the loop: the library counts a job as submitted only after this call.
            self._is_starting = True
            self._clock.call_later(0, self._start_some)

    def _start_some(self) -> None:
        self._is_starting = False
        while self._waiting and self._running < self._at_once_max:
            turn = self._waiting.popleft()
            scope = self.scopes.get(turn.job.id)
            if scope is None or not scope.may_start():
                self._refuse(turn.job, scope)
                continue
            self._running += 1
            task = scope.group.create_task(self._run(turn), name=f"job:{turn.job.id}")
            task.add_done_callback(partial(self._ended, turn, scope))

    def _ended(self, turn: "_Turn", scope: JobScope, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is not None:
            scope.close()  # its group is ending, and accepts no task
        self._running -= 1
        self._end(turn.job)
        self._start_some()

    def _end(self, job: Any) -> None:  # noqa: ANN401  the library's own
        self._run_job_success(job.id, [])
        is_overrun = job.id in self._overrun
        self._overrun.discard(job.id)
        if self._of_library.get_job(job.id) is None:
            self.forget(job.id)
        elif is_overrun:
            self._of_library.modify_job(job.id, next_run_time=self._time().astimezone(UTC))

    def _refuse(self, job: Any, scope: JobScope | None) -> None:  # noqa: ANN401  the library's own
        """Start nothing without the right to act. The right may return: then the job is late, and not lost."""
        self._end(job)
        if scope is not None and not scope.is_closed and self._of_library.get_job(job.id) is not None:
            self._of_library.modify_job(job.id, next_run_time=(self._time() + REFUSED_RETRY).astimezone(UTC))

    async def _run(self, turn: "_Turn") -> None:
        began_s, late_s = self._clock.monotonic(), max(0.0, (self._time() - turn.due_at).total_seconds())
        problem: WorkerError | None = None
        try:
            await turn.job.func(turn.queued_at)
        except WorkerError as met:
            problem = met
        took_s = self._clock.monotonic() - began_s
        end = JobEnd(name=turn.job.id, late_s=late_s, took_s=took_s, problem=problem)
        code = events.EVENT_JOB_EXECUTED if problem is None else events.EVENT_JOB_ERROR
        event = events.JobExecutionEvent(code, turn.job.id, "default", turn.due_at, retval=end, exception=problem)
        self._of_library._dispatch_event(event)  # noqa: SLF001  as the library's own executors do

    @property
    def _of_library(self) -> Any:  # noqa: ANN401  it has no types
        return self._scheduler


@dataclass(frozen=True, slots=True)
class _Turn:
    """_Turn is a job that is due: since when, and when it was put into the queue."""

    job: Any
    due_at: datetime
    queued_at: datetime


def _tell(on_job: OnJob, event: Any) -> None:  # noqa: ANN401  the library's own
    is_end = event.code != events.EVENT_JOB_MAX_INSTANCES
    on_job(event.retval if is_end else JobOverrun(event.job_id))
