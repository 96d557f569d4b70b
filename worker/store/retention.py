"""Retention: how long each kind of row is kept once its work is over. `docs/retention.md` says why."""

from datetime import timedelta

RUNS = timedelta(days=400)  # runs, SLA watches and marks: a year and a month, to compare with the same day last year
# Runs of older periods may be deleted at any time, so nothing may start or be repeated for them.
RUNS_BEGIN = RUNS - timedelta(days=7)
READINESS = timedelta(days=7)  # of a schedule whose rules nobody evaluated since
DRY_RUNS = timedelta(days=7)  # as consumers of these rows expect
JOB_LOG = timedelta(days=30)
RERUNS = timedelta(days=30)
INBOX = timedelta(days=400)  # what is known of objects in buckets
EVENTS = timedelta(days=90)  # and chat threads
RATES = timedelta(days=1)  # the recent use of a channel's rate limit
CONFIG_LOG = timedelta(days=7)
DEAD_LETTERS = timedelta(days=90)
FAILED_MESSAGES = timedelta(days=15)  # a queue keeps a message for at most 14
DEAD_SESSIONS = timedelta(days=1)
DONE_LEASES = timedelta(hours=48)
PARKED_KEYS = timedelta(hours=1)
JOB_HINTS = timedelta(hours=1)  # of a worker that receives no more events
REPLAY_REQUESTS = timedelta(days=1)
BULKS = timedelta(days=7)  # bulk operations: who resumes one does so within days
TRAITS = timedelta(days=7)  # results of probes, once they are stale: `explain` says since when
IDEMPOTENCY = timedelta(days=1)  # a sender that repeats a request does so soon
SHADOWS = timedelta(days=90)  # a trial ends, and its rows then expire by themselves
