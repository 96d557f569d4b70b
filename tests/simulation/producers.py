"""Those who write sensors into a simulated world, and the people who ask something of it."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Final

from tests.simulation.node import Surroundings
from tests.simulation.target import world_time
from worker.core.model.events import Event
from worker.core.model.keys import RunKey, millis, pipeline_pk
from worker.core.model.pipeline import Pipeline
from worker.core.model.values import Json
from worker.core.run.state import Outcome, Pause, Run, State
from worker.core.time.periods import Period
from worker.core.time.timestamps import format_rfc3339
from worker.jobs.runner import Succeeded
from worker.store.repos.events import Events
from worker.store.repos.pauses import Pauses
from worker.store.repos.requests import CancelRequest, Requests, RerunRequest, TriggerRequest
from worker.store.repos.runs import Runs, run_key
from worker.store.repos.sensors import Sensors
from worker.store.table import Delete, Put, StaleWrite, TableName

HOUR_S: Final = 3600.0
LOOKS_FOR_JOB_S: Final = 2400.0  # who changes data under a job waits so long for one
# A report names no attempt: only its time tells whether it speaks of an earlier one. A worker whose clock is off by too
# much stands aside at its next tick, which with a slowed beat is late.
REPORTED_BEHIND_S: Final = 60.0


@dataclass(slots=True)
class Producers:
    """Those who write sensors of one pipeline, and the people who look after it."""

    around: Surroundings
    pipeline: Pipeline
    random: Random
    signalled: set[RunKey] = field(default_factory=set[RunKey])
    uses_keys: bool = field(init=False)  # a sensor of its own for each period, or one that is written over

    def __post_init__(self) -> None:
        self.uses_keys = self.random.random() < 0.5

    async def run(self) -> None:
        """Tell of each hour when it begins, and of what changes in it."""
        async with asyncio.TaskGroup() as hours:
            for hour in range(self.around.plan.hours):
                hours.create_task(self._hour(hour), name=f"producer:{self.pipeline.id}:{hour}")
                hours.create_task(self._meddle(hour), name=f"meddler:{self.pipeline.id}:{hour}")
                hours.create_task(self._start_by_hand(hour), name=f"starter:{self.pipeline.id}:{hour}")

    async def _hour(self, hour: int) -> None:
        random = self.random
        await asyncio.sleep(hour * HOUR_S + random.uniform(1.0, 600.0))
        key = self._key(hour)
        counts = asyncio.create_task(self._count(key))
        await self._signal(key)
        if random.random() < 0.3:
            await asyncio.sleep(random.uniform(0.0, 60.0))
            await self._signal(key)  # as it was: nothing new
        await counts
        await self._afterwards(key)

    async def _signal(self, key: RunKey, **more: Json) -> None:
        period = key.period
        said: dict[str, Json] = {"status": "done", "date": str(period.date), "hour": f"{period.hour:02d}", **more}
        await self._write(f"ready#{period}" if self.uses_keys else "ready", said)
        self.signalled.add(key)

    async def _count(self, key: RunKey) -> None:
        """The data the rules wait for: there already, late, short at first, or never."""
        drawn, name = self.random.random(), f"count#{key.period}"
        if drawn < 0.1:
            return
        if drawn < 0.4:
            await self._write(name, {"rows": self.random.randint(1, 99)})
            await asyncio.sleep(self.random.uniform(0.5, 1500.0))
        elif drawn < 0.7:
            await asyncio.sleep(self.random.uniform(0.5, 1500.0))
        await self._write(name, {"rows": self.random.randint(100, 999)})

    async def _afterwards(self, key: RunKey) -> None:
        for _ in range(self.random.choice([0, 1, 1, 2])):
            await asyncio.sleep(self.random.uniform(60.0, 2400.0))
            deeds = (
                self._late,
                self._drift,
                self._rerun,
                self._cancel,
                self._begin_anew,
                self._foreign_event,
                self._report,
                self._pause,
                self._undated,
            )
            await self.random.choice(deeds)(key)

    # --- by hand ------------------------------------------------------------------------------------------------------

    async def _start_by_hand(self, hour: int) -> None:
        """Start a run that no sensor speaks of, or the run of an hour: before its signal, with it, or once it exists.

        It draws from a luck of its own, as `_meddle` does.
        """
        random = Random(f"by hand {self.around.plan.seed} {self.pipeline.id} {hour}")
        if random.random() < 0.7:
            return
        await asyncio.sleep(hour * HOUR_S + random.uniform(0.0, 1800.0))
        key = self._key(hour)
        if random.random() < 0.5:
            key = RunKey(key.pipeline, key.schedule, Period(key.period.date + timedelta(days=1)))
        if random.random() < 0.7:
            await self._write(f"count#{key.period}", {"rows": random.randint(100, 999)})
        for _ in range(random.choice([1, 1, 2])):
            await self._trigger(key)
            await asyncio.sleep(random.uniform(0.0, 900.0))

    async def _trigger(self, key: RunKey) -> None:
        request = TriggerRequest(
            reason="came by mail", requested_at=self._now(), id=self.around.new_name("starter"), by="person"
        )
        with suppress(StaleWrite):  # there is one that waits
            await Requests(self.around.store).ask_trigger(key, request, world_time(self._at()))
        self.signalled.add(key)

    # --- while the job runs -------------------------------------------------------------------------------------------

    async def _meddle(self, hour: int) -> None:
        """Change the data of an hour while its job runs: the signal, what the rules see, what is watched afterwards.

        It draws from a luck of its own, so that all else happens as it would without it.
        """
        key, random = self._key(hour), Random(f"{self.around.plan.seed} {self.pipeline.id} {hour}")
        if self.pipeline.dry_run or random.random() < 0.5:
            return
        await asyncio.sleep(hour * HOUR_S)
        if random.random() < 0.3:
            await self._write(f"out#{key.period}", {"sensor_count": 0})
        if not await self._is_job_seen(key):
            return
        for _ in range(random.choice([1, 1, 2])):
            await asyncio.sleep(random.uniform(0.0, 300.0))
            drawn = random.random()
            if drawn < 0.6:
                await self._signal(key, revision=random.randint(11, 13))
            elif drawn < 0.8:
                await self._write(f"count#{key.period}", {"rows": random.randint(100, 999)})
            else:
                await self._write(f"out#{key.period}", {"sensor_count": random.randint(0, 3)})

    async def _is_job_seen(self, key: RunKey) -> bool:
        for _ in range(int(LOOKS_FOR_JOB_S / 30.0)):
            await asyncio.sleep(30.0)
            jobs = self.around.record.by_run[key.pipeline, key.schedule, str(key.period)]
            if any(job.is_alive(self._at()) for job in jobs):
                return True
        return False

    # --- what may come later ------------------------------------------------------------------------------------------

    async def _late(self, key: RunKey) -> None:
        await self._signal(key, revision=self.random.randint(1, 3))

    async def _drift(self, key: RunKey) -> None:
        for _ in range(2):
            await self._write(f"out#{key.period}", {"sensor_count": self.random.randint(0, 3)})
            await asyncio.sleep(self.random.uniform(1.0, 900.0))

    async def _rerun(self, key: RunKey) -> None:
        requests = Requests(self.around.store)
        request = RerunRequest(
            reason="manual",
            requested_at=self._now(),
            id=self.around.new_name("person"),
            supersede=self.random.random() < 0.5,
        )
        await requests.ask_rerun(key, request, await requests.rerun_of(key))

    async def _cancel(self, key: RunKey) -> None:
        requests = Requests(self.around.store)
        request = CancelRequest(
            reason="not needed",
            requested_at=self._now(),
            id=self.around.new_name("person"),
            waive_sla=self.random.random() < 0.3,
        )
        await requests.ask_cancel(key, request, await requests.cancel_of(key))

    async def _begin_anew(self, key: RunKey) -> None:
        """A person takes the row of a run that is done away, and the producer says once more that it is ready."""
        run = await Runs(self.around.store).load(key)
        if isinstance(run, Run) and run.state is State.COMPLETED and run.outcome is Outcome.SUCCEEDED:
            await self.around.store.commit(Delete(TableName.CONTROL, run_key(key)))
            await self._signal(key)

    async def _report(self, key: RunKey) -> None:
        """Whoever ran the job reports how it ended, as other systems do: late, and true."""
        jobs = self.around.record.by_run[key.pipeline, key.schedule, str(key.period)]
        over = [job for job in jobs if not job.is_alive(self._at())]
        if over:
            job = over[-1]
            event = "success" if isinstance(job.end, Succeeded) else "fail"
            at = world_time(job.ends_at - REPORTED_BEHIND_S)
            sk = f"JOB#{key.schedule}#{key.period}#{millis(at):013d}"
            row = {"PK": pipeline_pk(key.pipeline), "SK": sk, "event": event, "runId": job.id}
            await self.around.store.commit(Put(TableName.JOBLOG, row))

    async def _pause(self, key: RunKey) -> None:
        """Pause for a while. Some pauses end by themselves; in any case somebody tidies up after a while.

        After a pause the rows are looked at, so a signal that another period's was written over is gone: who writes
        one sensor for all periods does not pause here.
        """
        if not self.uses_keys:
            return
        pauses, lasts_s = Pauses(self.around.store), self.random.uniform(60.0, 2400.0)
        until = world_time(self._at() + lasts_s) if self.random.random() < 0.7 else None
        await pauses.put(key.pipeline, Pause("maintenance", until))
        await asyncio.sleep(lasts_s + 300.0)
        with suppress(StaleWrite):  # somebody else paused it too, and was first
            await pauses.remove(key.pipeline)

    async def _undated(self, key: RunKey) -> None:
        """A signal that says nothing of its period: it is today's. Who writes dated ones over it cannot do that."""
        if self.uses_keys:
            today = RunKey(key.pipeline, key.schedule, Period(world_time(self._at()).date()))
            await self._write("ready", {"status": "done", "batch": self.around.new_name("batch")})
            self.signalled.add(today)
            await self._count(today)

    async def _foreign_event(self, key: RunKey) -> None:
        event = Event(
            id=self.around.new_name("foreign"), type="NOT_OURS", at=world_time(self._at()), pipeline=key.pipeline
        )
        await Events(self.around.store).put_foreign(event)

    async def _write(self, name: str, data: dict[str, Json]) -> None:
        await Sensors(self.around.store).put(self.pipeline.id, name, data)

    def _key(self, hour: int) -> RunKey:
        at = world_time(hour * HOUR_S)
        return RunKey(self.pipeline.id, self.pipeline.schedules[0].id, Period(at.date(), at.hour))

    def _at(self) -> float:
        return asyncio.get_running_loop().time()

    def _now(self) -> str:
        return format_rfc3339(world_time(self._at()))
