"""Log lines of the engine, the router and the group, each with its level."""

import logging
from collections.abc import Mapping
from typing import Final

from worker.membership.notices import ClockWrong, LeaseGone, LeaseTaken, Notice, PeerEnded, SessionBegan, SessionOver
from worker.runtime.logs import logger
from worker.store.availability import StoreBack, StoreDown

_log = logger()

QUIET: Final = frozenset({"fact.ignored", "request.ignored", "time.came"})
LOUD: Final = frozenset(
    {
        "run.damaged",
        "run.troubled",
        "row.troubled",
        "pipeline.troubled",
        "fact.delayed",
        "schedule.troubled",
        "schedule.refused",
        "schedule.unreadable",
        "schedule.passed",
        "target.closed",
        "clock.stepped",
        "probe.failed",
        "probe.delayed",
        "task.troubled",
        "hints.missed",
        "resync.cut",
    }
)


def log_work(event: str, facts: Mapping[str, object]) -> None:
    """Log an event of the engine or the router."""
    level = logging.DEBUG if event in QUIET else logging.WARNING if event in LOUD else logging.INFO
    _log.log(level, event, **facts)


def log_notice(notice: Notice) -> None:
    """Log an event of the group of workers."""
    match notice:
        case SessionBegan(session):
            _log.info("session.began", session=session)
        case SessionOver(session, reason):
            _log.info("session.ended", session=session, reason=reason)
        case PeerEnded(session):
            _log.warning("peer.ended", session=session)
        case LeaseTaken(stream, shard, epoch):
            _log.debug("lease.taken", stream=stream, shard=shard, epoch=epoch)
        case LeaseGone(stream, shard):
            _log.debug("lease.gone", stream=stream, shard=shard)
        case ClockWrong(ahead_s):
            _log.error("clock.distrusted", ahead_s=ahead_s)
        case StoreDown(reason, for_s):
            _log.error("store.down", reason=reason, for_s=round(for_s))
        case StoreBack(after_s):
            _log.info("store.back", after_s=round(after_s))
