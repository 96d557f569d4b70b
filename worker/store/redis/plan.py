"""Compiles a commit into what `commit.lua` reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, assert_never

from worker.runtime.msgpack_bytes import to_msgpack
from worker.store.index_entries import entries
from worker.store.limits import row_bytes
from worker.store.redis.keys import StoreKeys, slice_of
from worker.store.redis.values import encode_members, encode_row, encode_value
from worker.store.table import (
    COMMIT_ID,
    ROW_BYTES_MAX,
    Absent,
    AllOf,
    AnyOf,
    Check,
    Condition,
    Delete,
    Equals,
    Exists,
    Expired,
    Less,
    Put,
    Row,
    TooLarge,
    Update,
    Write,
)

VERSION: Final = "1"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
PUT, UPDATE, DELETE, CHECK = 1, 2, 3, 4
FIRST_BODY: Final = 2  # Lua counts from one, and the plan itself comes first


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPlan:
    """Holds a compiled commit: what it sends is the same every time, except for whether it is a repeat."""

    keys: Sequence[str]
    writes: Sequence[Write]
    compiled: Sequence[object]
    bodies: Sequence[bytes]
    signed: int  # the position of the write that stores the commit id, -1 if none does
    commit_id: str
    at_us: int
    tag: str
    kept_s: int

    def arguments(self, *, asks_time: bool, is_repeat: bool) -> list[bytes]:
        fixed = [self.tag, VERSION, str(self.at_us), self.signed + 1, self.commit_id, self.kept_s]
        return [to_msgpack([*fixed, asks_time, ROW_BYTES_MAX, is_repeat, self.compiled]), *self.bodies]


def microseconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


class Planner:
    """Compiles commits; `kept_s` is how long the server keeps a row after its `ttl`, -1 for ever."""

    def __init__(self, keys: StoreKeys, slices: int, kept_s: int) -> None:
        self._keys, self._slices, self._kept_s = keys, slices, kept_s

    def plan(self, writes: Sequence[Write], commit_id: str, now: datetime) -> CommitPlan:
        """Compile a commit. Raises `TooLarge` and `Rejected`."""
        signed = next((at for at, write in enumerate(writes) if isinstance(write, Put | Update)), -1)
        bodies: list[bytes] = []
        compiled = [
            self._compiled(write, {COMMIT_ID: commit_id} if at == signed else {}, bodies)
            for at, write in enumerate(writes)
        ]
        return CommitPlan(
            keys=[self._keys.meta, *(self._keys.row(write.table, write.key) for write in writes)],
            writes=writes,
            compiled=compiled,
            bodies=bodies,
            signed=signed,
            commit_id=commit_id,
            at_us=microseconds(now),
            tag=self._keys.tag,
            kept_s=self._kept_s,
        )

    def _compiled(self, write: Write, stamp: Row, bodies: list[bytes]) -> list[object]:
        condition = False if write.condition is None else compiled_condition(write.condition)
        pk, sk = write.key.pk, write.key.sk
        head = [write.table.value, pk, sk, condition, slice_of(pk, self._slices)]
        match write:
            case Put():
                bodies.append(_body(write, {**write.row, **stamp}))
                return [PUT, *head, len(bodies) + FIRST_BODY - 1]
            case Update():
                given = {**write.set, **write.set_if_absent}
                entries(write.table, given)  # rejects an index attribute of the wrong type
                set_always = encode_members({**write.set, **stamp})
                return [UPDATE, *head, set_always, encode_members(write.set_if_absent), list(write.remove)]
            case Delete():
                return [DELETE, *head]
            case Check():
                return [CHECK, *head]
            case _:
                assert_never(write)


def _body(write: Put, row: Row) -> bytes:
    entries(write.table, row)  # rejects an index attribute of the wrong type
    body = encode_row(row)
    # No value counts for more than 16 times its encoded bytes: short rows need no exact count.
    if len(body) > ROW_BYTES_MAX // 16 and (size := row_bytes(row)) > ROW_BYTES_MAX:
        raise too_large(write, size)
    return body


def too_large(write: Write, size: int) -> TooLarge:
    return TooLarge(
        f"{write.table} {write.key.pk} {write.key.sk} would have {size} bytes; at most {ROW_BYTES_MAX} fit in a row: "
        "keep large data elsewhere and store where it is"
    )


def compiled_condition(condition: Condition) -> list[object]:
    match condition:
        case Absent(attribute):
            return ["absent", attribute or False]
        case Exists(attribute):
            return ["exists", attribute or False]
        case Equals(attribute, value):
            return ["equals", attribute, encode_value(value)]
        case Less(attribute, value):
            return ["less", attribute, encode_value(value)]
        case Expired(now):
            return ["expired", encode_value(Decimal(microseconds(now)).scaleb(-6))]
        case AnyOf(conditions):
            return ["any", [compiled_condition(one) for one in conditions]]
        case AllOf(conditions):
            return ["all", [compiled_condition(one) for one in conditions]]
        case _:
            assert_never(condition)
