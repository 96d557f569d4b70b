"""Inputs and outputs of runs: what a job was started on and what it returned, each in a row next to the run's.

They are for people and programs that read runs. No decision depends on them, and every reader copes without them: rows
of earlier releases have none.
"""

from collections.abc import Mapping, Sequence

from worker.core.model import keys
from worker.core.model.job_data import JobInput, JobInputs, JobOutputs
from worker.core.model.keys import RunKey
from worker.store.rows import loose_text, to_json
from worker.store.table import Key, Row, TableName, Tables, Value


def inputs_key(key: RunKey) -> Key:
    return Key(keys.pipeline_pk(key.pipeline), keys.inputs_sk(key))


def outputs_key(key: RunKey) -> Key:
    return Key(keys.pipeline_pk(key.pipeline), keys.outputs_sk(key))


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
        return {wanted[key]: _outputs(row) for key, row in rows.items()}


def _inputs(row: Row) -> JobInputs:
    stored = row.get("inputs")
    members = stored.items() if isinstance(stored, Mapping) else ()
    return JobInputs(
        attempt=_number(row.get("attempt")),
        inputs={name: _input(member) for name, member in members if isinstance(member, Mapping)},
    )


def _input(stored: Row) -> JobInput:
    data, size = stored.get("data"), stored.get("size")
    return JobInput(
        content_hash=loose_text(stored, "hash"),
        data={name: to_json(value) for name, value in data.items()} if isinstance(data, Mapping) else None,
        size=size if isinstance(size, int) else None,
    )


def _outputs(row: Row) -> JobOutputs:
    return JobOutputs(
        attempt=_number(row.get("attempt")), value=to_json(row.get("outputs")), is_cut=row.get("cut") is True
    )


def _number(value: Value) -> int:
    return value if isinstance(value, int) else 0
