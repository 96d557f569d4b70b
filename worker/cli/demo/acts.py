"""Define the acts of the demo: the orders of a shop for three hours and a day, and what can go wrong."""

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Final, TypeAlias

from worker.cli.commands.explain import ExplainQuery, run_explain
from worker.cli.demo.stage import ExpectedEvent, Stage, run_of
from worker.core.model.events import EventType
from worker.core.model.ids import PipelineId

BRONZE, SILVER, GOLD, NEXT = "bronze-orders", "silver-orders", "gold-orders", "gold-orders-next"
PIPELINES: Final = (BRONZE, SILVER, GOLD, NEXT)
LANDING: Final = Path("lake") / "landing"
AMOUNT: Final = "9.50"


class Play:
    """Play runs the acts of one demo, for one day.

    Each act raises `NotInTime` if an expected event does not happen.
    """

    def __init__(self, stage: Stage, day: date) -> None:
        self._stage = stage
        self.day, self.first, self.second, self.third = f"{day}", f"{day}T00", f"{day}T01", f"{day}T02"

    @property
    def acts(self) -> Sequence["Act"]:
        return (
            ("Data arrives, and is not good enough yet", self._unfinished_data),
            ("The rest arrives", self._start),
            ("The day closes while an hour is missing", self._warning),
            ("The hour arrives, and a job fails", self._retry),
            ("Late data, after everything is done", self._late_data),
            ("A dry run", self._dry_run),
            ("A run that is left waiting, for you", self._leave_one_waiting),
        )

    @property
    def highlights(self) -> Sequence["Highlight"]:
        """Return what the acts have shown, each with the event that proves it."""
        return (
            ("a start", self._told(BRONZE, self.first, EventType.JOB_COMPLETED), "waited for its rows, then ran"),
            ("a warning", self._told(GOLD, self.day, EventType.RELATIVE_SLA_WARNING), "before its deadline"),
            ("a retry", self._told(SILVER, self.second, EventType.JOB_FAILED), "failed, and succeeded in attempt 2"),
            ("a deadline", self._told(GOLD, self.day, EventType.SLA_MET), "met its deadline"),
            ("late data", self._told(BRONZE, self.first, EventType.LATE_DATA_ARRIVAL), "ran again"),
            ("a rerun", self._told(SILVER, self.first, EventType.RERUN_ACCEPTED), "ran again after bronze"),
            ("a rerun", self._told(GOLD, self.day, EventType.RERUN_ACCEPTED), "ran again after silver"),
            ("a dry run", self._told(NEXT, self.day, EventType.DRY_RUN_WOULD_TRIGGER), "recorded what it would start"),
        )

    async def _unfinished_data(self) -> None:
        self._tell("The shop reports the hour 00. Its file is not complete: bronze requires at least 100 rows.")
        await self._land(self.first, 40)
        await self._stage.until_waiting(run_of(BRONZE, self.first))
        self._tell("\nThere is a run, but its job has not started. `explain` says why:")
        await self._explain(BRONZE, self.first)

    async def _start(self) -> None:
        self._tell(
            "The worker evaluates a changed sensor within a second. Silver runs after bronze (`schedule.after`):"
        )
        await self._land(self.first, 120)
        await self._stage.until(*self._completed((BRONZE, self.first), (SILVER, self.first)))

    async def _warning(self) -> None:
        self._tell("Gold requires both hours of the day. Its deadline counts from the close, with or without data:")
        await self._stage.say(GOLD, "day-close", self.day, status="closed")
        await self._stage.until(self._told(GOLD, self.day, EventType.RELATIVE_SLA_WARNING))
        self._tell("\nThe warning is sent while there is time to act. What does the run wait for?")
        await self._explain(GOLD, self.day)

    async def _retry(self) -> None:
        self._tell("The job of silver fails in its first attempt, and Interlock retries it within its budget:")
        await self._land(self.second, 120)
        await self._stage.until(
            self._told(SILVER, self.second, EventType.JOB_FAILED),
            *self._completed((SILVER, self.second), (GOLD, self.day)),
            self._told(GOLD, self.day, EventType.SLA_MET),
        )
        self._tell(f"\nThe deadline is met. {self._result()}")

    async def _late_data(self) -> None:
        self._tell("30 orders of the hour 00 arrive late. Bronze runs again, because its trigger sensor changed;")
        self._tell("silver and gold run again, because the runs that they were started on have completed again:")
        await self._land(self.first, 150)
        await self._stage.until(
            self._told(BRONZE, self.first, EventType.LATE_DATA_ARRIVAL),
            self._told(SILVER, self.first, EventType.RERUN_ACCEPTED),
            self._told(GOLD, self.day, EventType.RERUN_ACCEPTED),
            *self._completed((GOLD, self.day), times=2),
        )
        self._tell(f"\n{self._result()}")

    async def _dry_run(self) -> None:
        self._tell(
            "gold-orders-next has a stricter rule and `dryRun: true`. On the same sensors it records what it would"
        )
        self._tell("do, and starts nothing:")
        await self._stage.say(NEXT, "silver-day", self.day, **await self._stage.sensor(GOLD, f"silver-day#{self.day}"))
        await self._stage.say(NEXT, "day-close", self.day, status="closed")
        await self._stage.until(
            self._told(NEXT, self.day, EventType.DRY_RUN_WOULD_TRIGGER),
            self._told(NEXT, self.day, EventType.DRY_RUN_COMPLETED),
        )

    async def _leave_one_waiting(self) -> None:
        self._tell("The hour 02 stays incomplete, so that there is something to explore:")
        await self._land(self.third, 7)
        await self._stage.until_waiting(run_of(BRONZE, self.third))

    async def _land(self, hour: str, rows: int) -> None:
        """Act as the shop: write the file, then write the sensor that reports it."""
        LANDING.mkdir(parents=True, exist_ok=True)
        lines = ["id,amount", *(f"{hour}-{number},{AMOUNT}" for number in range(rows))]
        (LANDING / f"{hour}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        await self._stage.say(BRONZE, "landing", hour, status="complete", rows=rows)

    async def _explain(self, pipeline: str, period: str) -> None:
        self._stage.screen.line(f"$ interlock explain {pipeline} {period}", style="bold")
        asked = ExplainQuery(pipeline=PipelineId(pipeline), period=run_of(pipeline, period).period, schedule=None)
        await run_explain(self._stage.screen, self._stage.access, asked, as_json=False)

    def _completed(self, *runs: tuple[str, str], times: int = 1) -> list[ExpectedEvent]:
        return [self._told(pipeline, period, EventType.JOB_COMPLETED, times) for pipeline, period in runs]

    def _told(self, pipeline: str, period: str, event_type: EventType, times: int = 1) -> ExpectedEvent:
        return ExpectedEvent(pipeline=pipeline, period=period, type=event_type, times=times)

    def _result(self) -> str:
        """Return the result of gold, read from the file that its job wrote."""
        made = json.loads((Path("lake") / "gold" / f"{self.day}.json").read_text(encoding="utf-8"))
        return f"lake/gold/{self.day}.json: {made['orders']} orders, {made['revenue']} of revenue."

    def _tell(self, text: str) -> None:
        self._stage.screen.line(text)


Act: TypeAlias = tuple[str, Callable[[], Awaitable[None]]]
Highlight: TypeAlias = tuple[str, ExpectedEvent, str]
