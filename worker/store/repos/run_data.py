"""Inputs and outputs of runs: what a job was started on and returned, in rows next to the run's.

They are for people and programs that read runs. No decision depends on them, and every reader copes without them: rows
of earlier releases have none. Both are JSON text, so that no depth or number of a producer's data can make the row, and
with it the commit that starts a job, impossible.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

from worker.core.model import keys
from worker.core.model.job_data import JobInput, JobInputs, JobOutputs
from worker.core.model.keys import RunKey
from worker.core.model.values import Json
from worker.runtime.json_bytes import from_json, to_json
from worker.store import retention
from worker.store.rows import expiry, loose_text
from worker.store.table import TTL, Key, Put, Row, TableName, Tables, Value


def inputs_key(key: RunKey) -> Key:
    return Key(keys.pipeline_pk(key.pipeline), keys.inputs_sk(key))


def outputs_key(key: RunKey) -> Key:
    return Key(keys.pipeline_pk(key.pipeline), keys.outputs_sk(key))


def inputs_write(key: RunKey, inputs: JobInputs, now: datetime) -> Put:
    """Build the write of a job's inputs, for the commit that orders its start; it replaces earlier ones."""
    kept = {name: _input_to_map(each) for name, each in inputs.inputs.items()}
    more = {"leftOut": inputs.left_out} if inputs.left_out else dict[str, int]()
    return _put(inputs_key(key), {"attempt": inputs.attempt, "inputs": _text(kept), **more}, now)


def outputs_write(key: RunKey, outputs: JobOutputs, now: datetime) -> Put:
    """Build the write of a job's outputs, for the commit that records its end."""
    return _put(outputs_key(key), {"attempt": outputs.attempt, "outputs": _text(outputs.outputs)}, now)


class RunData:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def inputs(self, runs: Sequence[RunKey]) -> dict[RunKey, JobInputs]:
        """Return the inputs of those runs that have any."""
        wanted = {inputs_key(key): key for key in runs}
        rows = await self._tables.get_many(TableName.CONTROL, list(wanted))
        return {wanted[key]: _inputs(row) for key, row in rows.items()}

    async def outputs(self, runs: Sequence[RunKey]) -> dict[RunKey, JobOutputs]:
        """Return the outputs of those runs that have any."""
        wanted = {outputs_key(key): key for key in runs}
        rows = await self._tables.get_many(TableName.CONTROL, list(wanted))
        return {
            wanted[key]: JobOutputs(attempt=_number(row.get("attempt")), outputs=_members(row, "outputs"))
            for key, row in rows.items()
        }


def _put(key: Key, content: Mapping[str, Value], now: datetime) -> Put:
    row = {"PK": key.pk, "SK": key.sk, **content, TTL: expiry(now, retention.RUNS)}
    return Put(TableName.CONTROL, row)


def _input_to_map(each: JobInput) -> Mapping[str, Json]:
    return {"hash": each.content_hash, **({"size": each.size} if each.data is None else {"data": each.data})}


def _text(members: Mapping[str, Json]) -> str:
    return to_json(members).decode()


def _inputs(row: Row) -> JobInputs:
    return JobInputs(
        attempt=_number(row.get("attempt")),
        inputs={name: _input(each) for name, each in _members(row, "inputs").items() if isinstance(each, Mapping)},
        left_out=_number(row.get("leftOut")),
    )


def _input(stored: Mapping[str, Json]) -> JobInput:
    content_hash, data, size = stored.get("hash"), stored.get("data"), stored.get("size")
    return JobInput(
        content_hash=content_hash if isinstance(content_hash, str) else "",
        data=data if isinstance(data, Mapping) else None,
        size=size if isinstance(size, int) else None,
    )


def _members(row: Row, attribute: str) -> Mapping[str, Json]:
    """Return a stored JSON object; empty if it is damaged, because it is only for people."""
    try:
        found = cast("object", from_json(loose_text(row, attribute)))
    except ValueError:
        return {}
    return cast("Mapping[str, Json]", found) if isinstance(found, dict) else {}


def _number(value: Value) -> int:
    return value if isinstance(value, int) else 0
