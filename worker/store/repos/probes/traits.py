"""Traits: the results of probes, and what rules see of sensors and probes together.

A row outlives its result by some days, so that people can see since when the result is stale. To rules, a stale result
is missing.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from worker.core.model import keys
from worker.core.model.ids import PipelineId
from worker.core.model.pipeline import Pipeline
from worker.core.probes.trait import ProbeFailure, Trait, absence
from worker.core.time.periods import Period, split_key
from worker.store import retention
from worker.store.repos.sensors import Sensor, Sensors
from worker.store.rows import (
    expiry,
    instant,
    json_map,
    loose_text,
    optional_instant,
    optional_instant_text,
    text,
    whole,
    without_none,
)
from worker.store.table import (
    TTL,
    Absent,
    Condition,
    Equals,
    Expired,
    Key,
    Prefix,
    Put,
    Row,
    TableName,
    Tables,
    any_of,
    query_all,
)


def trait_of(row: Row) -> Trait | None:
    """Parse a trait from its row or from its image in a change record; None for any other row."""
    name = keys.trait_name_of(str(row["SK"]))
    if name is None:
        return None
    key, period = split_key(name)
    failure = None
    if row.get("failureKind") is not None:
        failure = ProbeFailure(
            kind=text(row, "failureKind"), reason=loose_text(row, "failure"), since=instant(row, "failingSince")
        )
    return Trait(
        key=key,
        period=period,
        data=json_map(row, "data") if row.get("data") is not None else None,
        content_hash=loose_text(row, "hash"),
        checked_at=optional_instant(row, "checkedAt"),
        changed_at=optional_instant(row, "changedAt"),
        stale_at=optional_instant(row, "staleAt"),
        failure=failure,
        asked_at=optional_instant(row, "askedAt"),
        prober=loose_text(row, "prober"),
        version=whole(row, "version"),
    )


class ProbeTraits:
    """Reads and writes the results of probes. A write is stale if another one came between."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def get(self, pipeline: PipelineId, key: str, period: Period | None) -> Trait | None:
        name = Trait(key=key, period=period).name
        row = await self._tables.get(TableName.CONTROL, _key(pipeline, name))
        return None if row is None else trait_of(row)

    async def get_many(self, pipeline: PipelineId, names: Iterable[str]) -> dict[str, Trait]:
        """Return those of several traits that exist, by their names."""
        wanted = [_key(pipeline, name) for name in dict.fromkeys(names)]
        rows = await self._tables.get_many(TableName.CONTROL, wanted) if wanted else {}
        return {trait.name: trait for row in rows.values() if (trait := trait_of(row))}

    async def list(self, pipeline: PipelineId) -> AsyncIterator[Trait]:
        """Yield all traits of a pipeline, in order of their name."""
        pk, begin = keys.pipeline_pk(pipeline), Prefix(keys.TRAIT)
        async for row in query_all(self._tables, TableName.CONTROL, pk, sk=begin):
            trait = trait_of(row)
            if trait is not None:
                yield trait

    async def put(self, pipeline: PipelineId, trait: Trait, now: datetime) -> Trait:
        """Write the next state of a trait that was read with its version; 0 means that there was none.

        Raises `StaleWrite` if another worker was first.
        """
        written = replace(trait, version=trait.version + 1)
        await self._tables.commit(put_write(pipeline, written, now))
        return written


def put_write(pipeline: PipelineId, written: Trait, now: datetime) -> Put:
    """Build the write of a trait whose version is one higher than the one that was read."""
    before = written.version - 1
    condition: Condition = Equals("version", before) if before else any_of(Absent(), Expired(now))
    at, failure = _key(pipeline, written.name), written.failure
    row = {
        "PK": at.pk,
        "SK": at.sk,
        "data": written.data,
        "hash": written.content_hash or None,
        "checkedAt": optional_instant_text(written.checked_at),
        "changedAt": optional_instant_text(written.changed_at),
        "staleAt": optional_instant_text(written.stale_at),
        "failureKind": failure.kind if failure else None,
        "failure": failure.reason if failure else None,
        "failingSince": optional_instant_text(failure.since if failure else None),
        "askedAt": optional_instant_text(written.asked_at),
        "prober": written.prober or None,
        "version": written.version,
        TTL: expiry(max(now, written.stale_at or now), retention.TRAITS),
    }
    return Put(TableName.CONTROL, without_none(row), condition)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleInputs:
    """RuleInputs: what rules see, by the names they use. `absences` says why a probe has no valid result."""

    sensors: Mapping[str, Sensor] = field(default_factory=dict[str, Sensor])
    absences: Mapping[str, str] = field(default_factory=dict[str, str])
    traits: Mapping[str, Trait] = field(default_factory=dict[str, Trait])


async def read_rule_inputs(
    tables: Tables,
    pipeline: Pipeline,
    names: Iterable[str],
    period: Period,
    now: datetime,
    *,
    with_stale: bool = False,
    likely: Collection[str] = (),
) -> RuleInputs:
    """Read the sensors and results of probes that rules name, consistently and by exact key.

    With `with_stale`, the last result of a probe counts although it is stale. `likely` is as in `Sensors.read`.
    """
    names = tuple(dict.fromkeys(names))
    probes = {probe.key: probe for probe in pipeline.probes if probe.key in names}
    plain = [name for name in names if name not in probes]
    sensors = await Sensors(tables).read(pipeline.id, plain, period, likely=likely) if plain else {}
    if not probes:
        return RuleInputs(sensors=sensors)
    wanted = {key: Trait(key=key, period=probe.period_of_result(period)).name for key, probe in probes.items()}
    found = await ProbeTraits(tables).get_many(pipeline.id, wanted.values())
    absences, traits = dict[str, str](), dict[str, Trait]()
    for key, name in wanted.items():
        trait = found.get(name)
        missing = absence(probes[key], trait, now)
        if trait is not None:
            traits[key] = trait
        if trait is not None and trait.data is not None and (with_stale or not missing):
            sensors[key] = Sensor(trait.name, trait.data)
        else:
            absences[key] = missing
    return RuleInputs(sensors=sensors, absences=absences, traits=traits)


def _key(pipeline: PipelineId, name: str) -> Key:
    return Key(keys.pipeline_pk(pipeline), keys.trait_sk(name))
