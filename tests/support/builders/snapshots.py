"""What was seen of a pipeline and its run, for explaining it, and what is found at one gate."""

from dataclasses import replace
from zoneinfo import ZoneInfo

from tests.support.builders.values import HOUR, KEY, NOON, a_pipeline, a_schedule
from worker.config.cron_text import parse_cron
from worker.core.model.checks import Operator
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline, Schedule, StartBy, Trigger
from worker.core.model.rules import Group, GroupResult, Mode, Rule, evaluate
from worker.core.model.values import Json
from worker.core.run.state import ForeignRun
from worker.operations.explain.explanation import Gate, GateFinding
from worker.operations.explain.gates import explain
from worker.operations.explain.snapshot import RunSnapshot, StoredVersion
from worker.store.repos.sensors import Sensor

BERLIN = ZoneInfo("Europe/Berlin")
COUNT = Rule(key="orders", field="count", check=Operator.GTE, value=1000)
READY = Trigger(rule=Rule(key="ready", field="status", check=Operator.EQUALS, value="done"))
CONFIG = StoredVersion(applied="v1", in_force="v1")
FOREIGN = ForeignRun(key=KEY, status="RUNNING", expires_at=NOON + HOUR)


def a_sight(
    pipeline: Pipeline | None = None,
    *,
    key: RunKey = KEY,
    sensors: dict[str, dict[str, Json]] | None = None,
    **changes: object,
) -> RunSnapshot:
    """A pipeline started by sensor `ready` whose rule wants 1000 orders; sensors by the key they are stored under."""
    pipeline = pipeline or rules_pipeline()
    stored = {name.partition("#")[0]: Sensor(name, data) for name, data in (sensors or {}).items()}
    sight = RunSnapshot(
        key=key,
        now=NOON,
        pipeline=pipeline,
        schedule=pipeline.schedules[0],
        config=CONFIG,
        rules_result=GroupResult(mode=Mode.ALL, count=0, passed=True, members=()),
        sensors=stored,
    )
    changed = replace(sight, **changes)
    data = {name: sensor.data for name, sensor in changed.sensors.items()}
    return replace(changed, rules_result=evaluate(changed.pipeline.rules, data, changed.now, changed.absences))


def rules_pipeline(
    schedule: Schedule | None = None, *, job: dict[str, object] | None = None, dry_run: bool = False
) -> Pipeline:
    rules = Group(members=(COUNT,))
    return a_pipeline(schedule=schedule or a_schedule(trigger=READY), rules=rules, job=job, dry_run=dry_run)


def cron_schedule(text: str = "0 6 * * *", **changes: object) -> Schedule:
    return a_schedule(trigger=None, cron=parse_cron(text), start=StartBy.CRON, zone=BERLIN, **changes)


def found(sight: RunSnapshot, gate: Gate) -> GateFinding:
    return next(finding for finding in explain(sight).findings if finding.gate is gate)
