"""The lease protocol in small: three sessions, two shards of which one is split, and everything that can go wrong.

What the sessions write is what the shipped `Leases` write, and what a refusal means is what `Leases` say it means. The
model adds when they do so, as `LeaseKeeper`, `HeldLease` and the shard consumers do, and what becomes of each request:
it may be late, arrive twice, or its reply may be lost. A session may stop at any moment; only one that has stopped is
ended by others, which is what the timing of beats is for (see `beatmodel`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_in_lease
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from consumers.streams.shard_tree import is_ready
from tests.modelcheck.explorer import Step
from tests.modelcheck.leasepromises import broken_promise, is_by_another, is_held_twice
from tests.modelcheck.leaseworld import (
    OTHER,
    PARENT,
    SHORT,
    STREAM,
    Effects,
    Hold,
    Luck,
    Member,
    Request,
    Status,
    Table,
    World,
    children_in,
    saved_in,
    table_of,
)
from tests.modelcheck.modeltable import Fate, ModelTable, Mutate, run
from worker.core.errors import RetryLater
from worker.core.model.keys import SessionId
from worker.store.repos.leases import Lease, Leases, LeaseStatus
from worker.store.table import StaleWrite, Write

NOW: Final = datetime(2026, 3, 3, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    table: Table
    flying: tuple[str, ...]
    answer: "Hold | bool | None"
    is_heard: bool


@dataclass(slots=True, kw_only=True)
class Model:
    """`mutate` and the flags are mistakes that the check must find."""

    luck: Luck = field(default_factory=lambda: Luck(stops=1, mishaps=1, asks=1, releases=0))
    sessions: int = 3
    records: Mapping[str, int] = field(default_factory=lambda: SHORT)
    mutate: Mapping[str, Mutate] = field(default_factory=dict[str, Mutate])  # by operation
    kills_the_living: bool = False
    saves_before_effect: bool = False
    ignores_parents: bool = False
    is_audited: bool = False  # the child's lease is there already: an audit found it before its parent ended
    requests: dict[str, tuple[Request, Sequence[Write]]] = field(
        default_factory=dict[str, tuple[Request, Sequence[Write]]]
    )
    _outcomes: dict[tuple[Table, Request, Fate], Outcome] = field(
        default_factory=dict[tuple[Table, Request, Fate], Outcome]
    )
    _judged: dict[tuple[Table, Table, Effects], str] = field(default_factory=dict[tuple[Table, Table, Effects], str])

    def start(self) -> World:
        table = ModelTable(())
        leases = Leases(table, "g")
        run(leases.create(Lease(stream=STREAM, shard=PARENT)))
        run(leases.create(Lease(stream=STREAM, shard=OTHER)))
        if self.is_audited:
            for child in children_in(self.records):
                run(leases.create(Lease(stream=STREAM, shard=child, parents=frozenset({PARENT}))))
        members = tuple(Member(SessionId(name)) for name in "abcdef"[: self.sessions])
        return World(table_of(table.rows), members, tuple((shard, 0) for shard in sorted(self.records)), self.luck)

    def is_final(self, world: World) -> bool:
        leases = world.table.leases
        return len(leases) == len(self.records) and all(lease.status is LeaseStatus.DONE for lease in leases.values())

    def steps(self, world: World) -> Iterator[Step[World]]:
        yield from self._arrivals(world)
        for member in _unlike(world.members):
            match member.status:
                case Status.UP:
                    yield from self._acts(world, member, world.table.leases)
                    if world.luck.stops:
                        yield self._stopped(world, member)
                    if self.kills_the_living:
                        yield self._ended(world, member)
                case Status.STOPPED:
                    yield self._ended(world, member)
                case Status.DEAD:
                    continue

    # --- the world ----------------------------------------------------------------------------------------------------

    def _arrivals(self, world: World) -> Iterator[Step[World]]:
        """A request that was on its way arrives."""
        for text in sorted(set(world.flying)):
            request, writes = self.requests[text]
            table = ModelTable(world.table.rows)
            rest = list(world.flying)
            rest.remove(text)
            try:
                table.apply(writes)
            except StaleWrite:
                yield Step(f"{request}: refused, being late", replace(world, flying=tuple(rest)))
                continue
            after = replace(world, table=table_of(table.rows), flying=tuple(rest))
            yield self._checked(world, after, f"{request}: applied late", request)

    def _stopped(self, world: World, member: Member) -> Step[World]:
        luck = replace(world.luck, stops=world.luck.stops - 1)
        after = _with(replace(world, luck=luck), replace(member, status=Status.STOPPED, holds=()))
        return Step(f"{member.id} stops", after)

    def _ended(self, world: World, member: Member) -> Step[World]:
        """Others see it stand still, and end it."""
        if member.status is Status.STOPPED:
            return Step(f"{member.id} is ended", _with(world, replace(member, status=Status.DEAD)))
        return Step(f"{member.id} is ended while it acts", _with(world, replace(member, is_ended=True)))

    # --- what a session does ------------------------------------------------------------------------------------------

    def _acts(self, world: World, member: Member, leases: Mapping[str, Lease]) -> Iterator[Step[World]]:
        for lease in leases.values():
            hold = member.hold_of(lease.shard)
            if hold is None:
                yield from self._takes(world, member, lease, leases)
                yield from self._asks(world, member, lease)
            elif (lease.owner, lease.epoch) != (member.id, hold.lease.epoch):
                yield Step(f"{member.id} sees that {lease.shard} is lost", _with(world, member.without(lease.shard)))
            else:
                yield from self._works(world, member, hold, lease)

    def _takes(self, world: World, member: Member, lease: Lease, leases: Mapping[str, Lease]) -> Iterator[Step[World]]:
        if lease.status is LeaseStatus.DONE or not (is_ready(lease, leases) or self.ignores_parents):
            return
        if lease.owner is None:
            yield from self._sent(world, member, "take_free", lease)
        elif lease.owner == member.id or self._is_dead(world, lease.owner):
            yield from self._sent(world, member, "take_from_dead", lease)

    def _is_dead(self, world: World, session: SessionId) -> bool:
        found = next(member for member in world.members if member.id == session)
        return found.status is Status.DEAD or found.is_ended

    def _asks(self, world: World, member: Member, lease: Lease) -> Iterator[Step[World]]:
        if world.luck.asks and lease.owner not in {None, member.id} and lease.wanted_by is None:
            poorer = replace(world, luck=replace(world.luck, asks=world.luck.asks - 1))
            yield from self._sent(poorer, member, "ask", lease)

    def _works(self, world: World, member: Member, hold: Hold, row: Lease) -> Iterator[Step[World]]:
        shard = hold.lease.shard
        if hold.done < self.records[shard]:
            yield self._effect(world, member, hold)
        ahead = self.saves_before_effect and hold.saved == hold.done < self.records[shard]
        if hold.saved < hold.done or ahead:
            yield from self._sent(world, member, "checkpoint", hold.lease, hold.done + ahead)
        # Whoever gives a lease up has ended its work before it writes.
        if row.wanted_by is not None:
            yield from self._sent(_with(world, member.without(shard)), member, "transfer", hold.lease, hold.done)
        if world.luck.releases:
            poorer = replace(world, luck=replace(world.luck, releases=world.luck.releases - 1))
            yield from self._sent(_with(poorer, member.without(shard)), member, "release", hold.lease, hold.done)
        if hold.saved == self.records[shard]:
            yield from self._sent(world, member, "finish", hold.lease)

    def _effect(self, world: World, member: Member, hold: Hold) -> Step[World]:
        shard, done = hold.lease.shard, hold.done + 1
        effects = tuple((name, max(last, done) if name == shard else last) for name, last in world.effects)
        after = _with(replace(world, effects=effects), member.having(replace(hold, done=done)))
        return self._checked(world, after, f"{member.id} handles record {done} of {shard}")

    # --- requests -----------------------------------------------------------------------------------------------------

    def _sent(self, world: World, member: Member, operation: str, lease: Lease, done: int = 0) -> Iterator[Step[World]]:
        request = Request(sender=member.id, operation=operation, lease=lease, done=done)
        for fate in Fate if world.luck.mishaps else (Fate.CLEAN,):
            spent = replace(world.luck, mishaps=world.luck.mishaps - (fate is not Fate.CLEAN))
            yield self._send(replace(world, luck=spent), request, fate)

    def _send(self, world: World, request: Request, fate: Fate) -> Step[World]:
        outcome = self._outcome(world.table, request, fate)
        sender = next(each for each in world.members if each.id == request.sender)
        if outcome.is_heard:
            sender = _informed(sender, request, outcome.answer)
        flying = tuple(sorted((*world.flying, *outcome.flying)))
        after = _with(replace(world, table=outcome.table, flying=flying), sender)
        return self._checked(world, after, outcome.name, request)

    def _outcome(self, table: Table, request: Request, fate: Fate) -> Outcome:
        """The same request to the same rows has the same outcome, whatever else is the case."""
        found = self._outcomes.get((table, request, fate))
        if found is None:
            found = self._outcomes[table, request, fate] = self._performed(table, request, fate)
        return found

    def _performed(self, before: Table, request: Request, fate: Fate) -> Outcome:
        table = ModelTable(before.rows, fate, self.mutate.get(request.operation, lambda writes: [writes]))
        answer, is_heard = None, True
        try:
            answer = _perform(Leases(table, "g"), request, children_in(self.records))
        except RetryLater:
            is_heard = False  # it knows nothing new, and reads the row the next time it looks
        flying = {f"{request} {writes!r}": (request, writes) for writes in table.flying}
        self.requests |= flying
        told = _held(answer) if isinstance(answer, Lease) else answer
        return Outcome(f"{request}, {fate.name.lower()}", table_of(table.rows), tuple(flying), told, is_heard)

    def _checked(self, before: World, after: World, name: str, request: Request | None = None) -> Step[World]:
        if request is not None and before.table is not after.table and is_by_another(request, before):
            return Step(name, after, "one who does not own it changed it")
        if is_held_twice(after):
            return Step(name, after, "two sessions hold one lease")
        return Step(name, after, self._broken_promise(before.table, after.table, after.effects))

    def _broken_promise(self, before: Table, after: Table, effects: Effects) -> str:
        """The same change with the same effects breaks the same promise, whatever else is the case."""
        found = self._judged.get((before, after, effects))
        if found is None:
            found = broken_promise(before, after, dict(effects), self.records)
            self._judged[before, after, effects] = found
        return found


def _perform(leases: Leases, request: Request, children: Sequence[str]) -> "Lease | bool | None":
    lease, sender, position = request.lease, request.sender, str(request.done) if request.done else None
    match request.operation:
        case "take_free":
            return run(leases.take_free(lease, sender))
        case "take_from_dead":
            return run(leases.take_from_dead(lease, sender))
        case "ask":
            return run(leases.ask(lease, sender))
        case "checkpoint":
            return run(leases.checkpoint(lease, str(request.done)))
        case "transfer":
            found = run(leases.get(lease.stream, lease.shard))
            assert found is not None
            return found.wanted_by is not None and run(leases.transfer(lease, found.wanted_by, position))
        case "release":
            return run(leases.release(lease, position))
        case _:
            born = children if lease.shard == PARENT else ()
            return run(leases.finish(lease, dict.fromkeys(born, frozenset({PARENT})), NOW, whole_to=NOW))


def _held(taken: Lease) -> Hold:
    saved = saved_in(taken)
    return Hold(replace_in_lease(taken, checkpoint=None, wanted_by=None), saved, saved)


def _informed(member: Member, request: Request, answer: "Hold | bool | None") -> Member:
    """What the sender makes of the answer."""
    if isinstance(answer, Hold):
        return member.having(answer)
    hold = member.hold_of(request.lease.shard)
    if hold is None or request.operation in {"ask", "take_free", "take_from_dead"}:
        return member
    if request.operation == "checkpoint" and answer:
        return member.having(replace(hold, saved=request.done))
    return member.without(request.lease.shard)  # finished, or refused: it is not ours any more


def _unlike(members: Sequence[Member]) -> list[Member]:
    """Of those that have done nothing, one stands for all: what follows is the same but for names."""
    return [*(member for member in members if not member.is_fresh), *[each for each in members if each.is_fresh][:1]]


def _with(world: World, member: Member) -> World:
    member = replace(member, is_fresh=False)
    return replace(world, members=tuple(member if each.id == member.id else each for each in world.members))
