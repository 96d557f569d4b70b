"""Replay dead letters on request, with as many retries as any record gets.

The worker that holds the `replays` lease does this. A dead letter takes the same path as its record did. Dead letters
of one key are replayed in order, oldest first; the first that fails again ends the replay of that key. The key is
released only when no dead letter is left. A record that arrives at that moment is counted on the parked key, so that it
is either replayed as well or handled after the release, and never overtaken.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from consumers.delivery.retry import GivenUp, RetryPolicy
from consumers.outbox.routes import Deliver, event_in
from consumers.streams.parking import REASON_MAX, change_of
from worker.core.errors import ConfigError, Rejected, RetryLater
from worker.membership.held_lease import HeldLease, LeaseLost
from worker.membership.lease_coordinator import LeaseOffer
from worker.runtime.logs import logger
from worker.store.repos.delivery.dead_letter_replays import ReplayRequest, Replays
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.delivery.parked_keys import ParkedKeys
from worker.store.row_codec import decode_row
from worker.store.rows import optional_text, text, to_json_map
from worker.store.table import Change, Row

STREAM: Final = "replays"
LOOK_EVERY_S: Final = 30.0  # a person waits for the replay, but each check is a read that costs money
ROUNDS_MAX: Final = 20  # listings of a key's dead letters before other requests are served

_log = logger()

# Handles the content of a dead letter in the same way as its record. Raises `RetryLater` and `Rejected`.
Way: TypeAlias = Callable[[Row], Awaitable[None]]
Lane: TypeAlias = tuple[str, str]  # a source, and a key of that source


def handled(handle: Callable[[Change], Awaitable[None]]) -> Way:
    """Return the way that replays a record of a stream."""

    async def replay(body: Row) -> None:
        if "PK" not in body:
            raise Rejected("the record is no change of a row, so there is nothing to handle; drop the dead letter")
        await handle(change_of(body))

    return replay


def delivered(deliver: Deliver) -> Way:
    """Return the way that replays an event over its route."""

    async def replay(body: Row) -> None:
        await deliver(event_in(to_json_map(body)))

    return replay


def sent_back(send: Callable[[str, str | None], Awaitable[None]]) -> Way:
    """Return the way that sends a message back to its queue, in its original group."""

    async def replay(body: Row) -> None:
        try:
            await send(text(body, "body"), optional_text(body, "group"))
        except ConfigError as error:
            # The queue is gone, or the worker may not write to it. The dead letter stays with this reason, and the
            # worker continues.
            raise Rejected(str(error)) from error

    return replay


class Replayer:
    """Replays dead letters while it holds the lease. `ways` maps the source of a dead letter to its path.

    With a `part`, it serves only the sources in `ways` and leaves the other requests to other workers.
    """

    def __init__(
        self,
        ways: Mapping[str, Way],
        *,
        requests: Replays,
        letters: DeadLetters,
        keys: ParkedKeys,
        tries: RetryPolicy,
        part: str = "",
    ) -> None:
        self._ways, self._requests, self._letters, self._keys, self._tries = ways, requests, letters, keys, tries
        self._part = part

    def offer(self) -> LeaseOffer:
        stream = f"{STREAM}.{self._part}" if self._part else STREAM
        return LeaseOffer(stream=stream, holder=self, shards=frozenset({"0"}))

    async def hold(self, held: HeldLease) -> None:
        while not held.is_stopping:
            with suppress(RetryLater):
                await self._serve(held)
            await held.nap(LOOK_EVERY_S)

    async def _serve(self, held: HeldLease) -> None:
        failed: set[Lane] = set()  # keys that failed again; a second request does not replay them once more
        for request in await self._requests.list():
            if held.is_stopping:
                return
            if self._part and request.source not in self._ways:
                continue
            letter = await self._letters.get(request.source, request.at, request.id)
            lane = None if letter is None or letter.lane is None else (letter.source, letter.lane)
            if letter is not None and lane not in failed and not await self._replay(letter, held) and lane is not None:
                failed.add(lane)
            await self._settle(request)

    async def _settle(self, request: ReplayRequest) -> None:
        await self._requests.settle(request)
        _log.info("replay.served", source=request.source, letter=request.id)

    async def _replay(self, letter: DeadLetter, held: HeldLease) -> bool:
        """Replay a dead letter after those it must not overtake; return False if one of them failed again."""
        if letter.lane is None:
            return await self._replay_all([letter], held)
        for _ in range(ROUNDS_MAX):
            parked = await self._keys.get(letter.source, letter.lane)
            letters = await self._letters.of_lane(letter.source, letter.lane)
            if parked is None:
                letters = [each for each in letters if (each.at, each.id) <= (letter.at, letter.id)]
            if not await self._replay_all(letters, held):
                return False
            if parked is None or (not letters and await self._keys.release_if_unfollowed(parked)):
                return True
        raise RetryLater(f"dead letters of {letter.source} arrive as fast as they are replayed; the rest waits")

    async def _replay_all(self, letters: Sequence[DeadLetter], held: HeldLease) -> bool:
        for letter in letters:
            if (given_up := await self._try(letter, held)) is not None:
                await self._letters.amend(letter, given_up.reason[:REASON_MAX], given_up.history)
                _log.error("replay.failed", source=letter.source, letter=letter.id, reason=given_up.reason)
                return False
            await self._letters.drop(letter)
            _log.info("letter.replayed", source=letter.source, letter=letter.id)
        return True

    async def _try(self, letter: DeadLetter, held: HeldLease) -> GivenUp | None:
        way, body = self._ways.get(letter.source), await self._letters.body(letter)
        if way is None:
            return GivenUp(f"no worker reads {letter.source} any more; drop the dead letter", ())
        if body is None:
            return None  # a person has dropped it meanwhile

        async def go() -> None:
            if not held.may_act():
                raise LeaseLost(held.lease)
            await way(decode_row(body))

        return await self._tries.limited(go)
