"""Leases, watched commit by commit: whoever holds one holds it at an epoch of its own, and no work is done again."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.simulation.violations import Invariant, Verdicts
from worker.core.model import keys
from worker.store.table import Key, TableName, Update, Write


@dataclass(slots=True)
class LeaseInspector:
    verdicts: Verdicts
    _rows: dict[Key, dict[str, object]] = field(default_factory=dict[Key, dict[str, object]])

    def committed(self, writes: Sequence[Write]) -> None:
        for write in writes:
            match write:
                case Update(table=TableName.CONTROL, key=key) if key.sk.startswith(keys.LEASE):
                    self._check(key, write)
                case _:
                    continue

    def _check(self, key: Key, write: Update) -> None:
        before = self._rows.get(key, {})
        after: dict[str, object] = {**write.set_if_absent, **before, **write.set}
        for name in write.remove:
            after.pop(name, None)
        old, new = int(str(before.get("epoch", 0))), int(str(after.get("epoch", 0)))
        moved = before.get("owner") != after.get("owner")
        self.verdicts.require(
            new == old + 1 if moved else new >= old,
            Invariant.VERSIONS_ONLY_RISE,
            f"lease {key.sk} went from {before.get('owner')} at {old} to {after.get('owner')} at {new}",
        )
        self.verdicts.require(
            str(after.get("cp", "")) >= str(before.get("cp", "")),
            Invariant.VERSIONS_ONLY_RISE,
            f"the checkpoint of {key.sk} went back from {before.get('cp')} to {after.get('cp')}",
        )
        self._rows[key] = after
