"""The records that commands print with --json: their types, and what each field means.

`interlock` of the tests compares everything that a command prints with this table, so it cannot fall behind the code.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

Fields: TypeAlias = Mapping[str, str]

_RUN: Final = {
    "pipeline": "the pipeline's id",
    "schedule": "the schedule's id",
    "period": "the period: `2027-03-22`, `2027-03-22T07` or `2027-03-22T0730`",
}
_TRUNCATED: Final = {
    "what": "what was cut",
    "shown": "how many were shown",
    "total": "how many there are; null if unknown",
    "isExact": "whether `total` is exact; if not, there are at least as many",
    "hint": "how to see the rest",
}
_PLANNED: Final = {
    **_RUN,
    "day": "the local day under which the run is listed",
    "by": "why the run is expected: `cron`, or another part of the schedule",
    "at": "when it is due, in UTC; null without a fixed time",
    "local": "the same in the schedule's time zone",
    "zone": "the time zone",
    "warningAt": "when an SLA warning would be due",
    "breachAt": "when its deadline is",
    "evaluationAt": "when its rules must hold",
    "triggerDeadlineAt": "when the trigger's deadline is",
    "excluded": "why the calendar excludes it; null if it runs",
    "note": "a remark, for example about a change of clocks",
}
_TIME: Final = {
    **_RUN,
    "at": "the cron time in UTC",
    "local": "the same in the schedule's time zone",
    "zone": "the time zone",
    "excluded": "why the calendar excludes it; null if it runs",
    "note": "a remark, for example about a change of clocks",
    "sentence": "what keeps it from starting, or why it was missed; null if nothing is known",
}
_RUN_BELOW = {
    "pipeline": "the pipeline's id",
    "schedule": "the schedule's id",
    "period": "the period of the run",
}
_REQUEST: Final = {
    **_RUN,
    "asked": "whether the request was written",
    "prospect": "`accepted`, `waits` (for the end of a pause), `refused` or `nothing`",
    "sentence": "what happens, or why not",
    "remedy": "what to do instead; null if nothing",
}
_BULK_RUN: Final = {**_RUN, "sentence": "what happens, or why not; null if not known any more"}
_BULK_MORE: Final = {
    "bulk": "the id of the bulk operation",
    "result": "`requested` or `rejected`",
    "prospect": "with `--dry-run`: `accepted`, `waits` (for the end of a pause), `refused` or `nothing`",
    "remedy": "with `--dry-run`: what to do instead; null if nothing",
}
_LISTED: Final = {
    "at": "when it happened",
    **_RUN,
    "message": "what happened, in a sentence",
    "detail": "further fields of the event",
}
_SPAN: Final = {"from": "the first day", "to": "the last day"}
_SENSOR: Final = {"pipeline": "the pipeline's id", "key": "the sensor's key", "data": "its fields"}


class Record(NamedTuple):
    """One type of record, and the commands that print it. A record of `optional` fields may lack them."""

    commands: tuple[str, ...]
    type: str
    about: str
    fields: Fields
    optional: frozenset[str] = frozenset()


RECORDS: Final[Sequence[Record]] = (
    Record(
        ("init",),
        "file",
        "one for each file that was created",
        {"path": "the file", "purpose": "what it is for"},
    ),
    Record(
        ("validate", "pipelines push"),
        "problem",
        "one for each problem",
        {
            "file": "the file",
            "line": "its line",
            "column": "its column",
            "path": "the key, as in `validation.rules[2].check`",
            "severity": "`error` or `warning`",
            "message": "what is wrong",
            "hint": "what to do; may be empty",
        },
    ),
    Record(
        ("validate", "pipelines push"),
        "summary",
        "the last record; of `pipelines push`, if a file has an error",
        {
            "files": "how many files were read",
            "pipelines": "how many pipelines are in them",
            "calendars": "how many calendars",
            "errors": "how many errors",
            "warnings": "how many warnings",
        },
    ),
    Record(
        ("plan",),
        "run",
        "one for each expected run",
        {
            **_PLANNED,
            "status": "with `--states`, how far the run is; else null",
            "waitsFor": (
                "for each item of `after`: `pipeline`, `schedule`, `periods`, the `first` and `last` period, "
                "how many `runs`, `require`, a `sentence`, and with `--states` the `state`"
            ),
        },
    ),
    Record(
        ("plan",),
        "change",
        "with `--against`, one for each change",
        {
            "change": "`added`, `removed`, `moved` or `deadline`",
            **_RUN,
            "old": "the run as it was, with the fields of `run`; null if it is new",
            "new": "the run as it will be; null if it is removed",
        },
    ),
    Record(
        ("plan",),
        "archetypeChange",
        "with `--against`, one for each pipeline that uses an archetype and differs",
        {
            "pipeline": "the id of the pipeline",
            "archetype": "the id of the archetype",
            "before": "the hash of the archetype that the old file extends; null if it extends none",
            "after": "the same of the new file",
            "changes": "the parts of the pipeline that change: `path`, `before` and `after`, null if there is none",
        },
    ),
    Record(
        ("plan",),
        "summary",
        "the last record; with `--against`, the number of changes of each kind",
        {
            **_SPAN,
            "runs": "how many runs are expected",
            "excluded": "how many a calendar excludes",
            "pipelines": "how many pipelines",
            "added": "how many runs are new",
            "removed": "how many runs are no longer expected",
            "moved": "how many runs change their time",
            "deadline": "how many runs change only their deadline",
        },
        frozenset({"runs", "excluded", "pipelines", "added", "removed", "moved", "deadline"}),
    ),
    Record(
        ("pipelines push",),
        "pipeline",
        "one for each pipeline",
        {
            "id": "the pipeline's id",
            "status": "`new`, `changed` or `unchanged`",
            "configHash": "the hash of its configuration",
            "diff": "the difference to the stored configuration",
        },
    ),
    Record(
        ("pipelines push",),
        "pushed",
        "one for each pipeline that was to be written, if the store failed meanwhile; then there is no summary",
        {
            "id": "the pipeline's id",
            "written": "whether it is certainly in force; pushing again writes the others",
        },
    ),
    Record(
        ("pipelines push",),
        "summary",
        "the last record, if no file has an error",
        {
            "new": "how many are new",
            "changed": "how many changed",
            "unchanged": "how many did not change",
            "written": "how many were written",
        },
    ),
    Record(
        ("pipelines list",),
        "pipeline",
        "one for each pipeline; one that cannot be read has `id` and `errors`",
        {
            "id": "the pipeline's id",
            "configHash": "the hash of its configuration",
            "job": "the job's type; null without a job",
            "schedules": "the ids of its schedules",
            "owner": "its owner",
            "dryRun": "whether it is in dry run",
            "paused": "why it is paused; null if it is not",
            "pausedUntil": "when the pause ends; null if it has no end",
            "errors": "why its configuration is invalid",
        },
        frozenset({"configHash", "job", "schedules", "owner", "dryRun", "paused", "pausedUntil", "errors"}),
    ),
    Record(
        ("pipelines remove",),
        "removed",
        "the pipeline that was removed",
        {
            "id": "the pipeline's id",
            "downstreams": "pipelines that run after it and wait from now on, at most 100",
            "downstreamsTotal": "how many there are",
        },
    ),
    Record(
        ("inbox test",),
        "inbox",
        "one for each sensor that a rule would write",
        {
            "news": "the notification in the message",
            "rule": "the rule that matches",
            "pipeline": "the pipeline's id",
            "sensor": "the sensor's key",
            "period": "the period; null: the day on which the message arrives",
            "fields": "the sensor's fields",
        },
    ),
    Record(
        ("inbox put",),
        "inbox-summary",
        "one record",
        {
            "seen": "how many notifications the message has",
            "used": "how many became sensors",
            "skipped": "how many were skipped, because their content is known",
            "unmatched": "how many match no rule",
            "failed": "how many could not be used",
        },
    ),
    Record(
        ("inbox parts",),
        "inbox-part",
        "one for each object, in the order of their keys",
        {
            "key": "the object's key",
            "etag": "its content; empty if it is not there",
            "size": "its bytes",
            "state": "`there`, `missing` (the manifest lists it) or `deleted`",
            "version": "the version of the collection in which it last changed",
        },
    ),
    Record(
        ("ledger show",),
        "ledger-record",
        "one for each record",
        {"id": "the record's id", "hash": "the hash that was saved last"},
    ),
    Record(
        ("ledger stats",),
        "ledger",
        "one record",
        {
            "name": "the ledger",
            "records": "how many records it has",
            "heldBy": "the run and attempt that may save; null if none did yet",
            "heldSince": "since when; null if none did yet",
            "savedAt": "when records were saved last; null if none were",
        },
    ),
    Record(
        ("summary put",),
        "run-summary",
        "one record",
        {
            "pipeline": "the pipeline",
            "schedule": "the schedule",
            "period": "the period",
            "summary": "`seen`, `processed`, `skipped` and `errored`, as far as the job gave them",
        },
    ),
    Record(
        ("store init",),
        "init",
        "one record",
        {"place": "the store", "made": "whether anything was created"},
    ),
    Record(
        ("store check",),
        "verdict",
        "one for each check",
        {
            "ok": "whether the check passed",
            "subject": "what was checked",
            "finding": "what was found",
            "remedy": "what to do; empty if the check passed",
        },
    ),
    Record(
        ("store migrate",),
        "migration",
        "one record",
        {
            "place": "the store",
            "before": "its version before; null if this kind of store has none",
            "after": "its version now",
            "backup": "the file with the backup; null without one",
        },
    ),
    Record(
        ("store stats",),
        "figure",
        "one for each number",
        {"name": "what is measured", "value": "the number", "note": "how exact it is, or the number in readable form"},
    ),
    Record(
        ("store copy",),
        "copy",
        "one record",
        {
            "from": "the store that was copied",
            "to": "the new store",
            "rows": "how many rows of each table were verified",
            "total": "how many rows were verified",
            "expired": "how many expired rows were left behind",
        },
    ),
    Record(
        ("status",),
        "run",
        "one for each run",
        {
            **_RUN,
            "row": "the row, if it cannot be read; otherwise null",
            "kind": "`failed`, `missed`, `unreadable`, `active`, `in dry run`, `cancelled` or `completed`",
            "state": "the stored state, for example `POLLING`; `MISSED` for a run that does not exist",
            "status": "the state in the words of the docs, for example `running`",
            "since": "since when",
            "attempt": "the number of the attempt",
            "waitsFor": "what the run waits for, or why it ended",
            "breachAt": "when its deadline is; null without one",
            "evaluationAt": "when its rules must hold; null without such a deadline",
            "evaluationVerdict": "how that was judged: null until then",
            "monitoredUntil": "until when probes check the results of a completed run; null without `postRun.monitor`",
            "warnedAt": "when an SLA warning was sent; null if none was",
            "verdict": "how the deadline was judged: null until then",
        },
    ),
    Record(
        ("explain",),
        "explanation",
        "one record",
        {
            **_RUN,
            "state": "the stored state; null without a run",
            "status": "the state in the words of the docs",
            "summary": "the answer in one sentence",
            "isUnderWay": "whether the run is active",
            "needed": "what would make it run",
            "readiness": "the stored readiness of this run, and whether it `differs`; null if there is none",
            "gates": (
                "one for each gate: `gate`, `passage`, `status` (`passed`, `blocked`, `unknown`), `sentence`, "
                "`changes`, `conditions` (`subject`, `passed`, `seen`, `wanted`, `reason`, `sensor`, `changedAt`, "
                "`changedSinceStart`)"
            ),
            "otherActivePeriods": "the periods of other active runs, if no period was given",
        },
    ),
    Record(
        ("history",),
        "moment",
        "one for each entry, oldest first",
        {
            **_RUN,
            "at": "when; null if unknown",
            "source": "`rerun`, `job log`, `event`, `run` or `sla`",
            "what": "what happened, as it is stored",
            "status": "the same in the words of the docs",
            "attempt": "the number of the attempt",
            "message": "the details",
            "otherActivePeriods": "the periods of other active runs, if no period was given",
        },
    ),
    Record(
        ("events",),
        "event",
        "one for each event, oldest first",
        {
            "id": "the event's id; a repeat has the same",
            "eventType": "its type: see [events](events.md)",
            "at": "when it was recorded",
            "pipeline": "the pipeline's id; may be empty",
            "schedule": "the schedule's id; may be empty",
            "period": "the period; may be empty",
            "message": "one sentence",
            "detail": "its payload: see [events](events.md)",
        },
    ),
    Record(("schedule next",), "next", "one for each cron time", _TIME),
    Record(("schedule missed",), "missed", "one for each missed run", _TIME),
    Record(("sensor put", "sensor get", "sensor list"), "sensor", "one for each sensor", _SENSOR),
    Record(
        ("probe test",),
        "probe",
        "the result of one request",
        {
            "pipeline": "the pipeline's id",
            "key": "the probe's key",
            "probeType": "the type of the probe",
            "period": "the period that it asked about",
            "result": "what it found; null if that is unknown",
            "failure": "why the result is unknown; null if it is known",
            "durationMs": "how long it took, in milliseconds",
            "rules": "each rule on the probe: `part` of the file, `passed`, `reason`, `wanted`",
        },
    ),
    Record(
        ("lineage",),
        "lineage",
        "one record",
        {
            "nodes": "one for each pipeline: `pipeline`, `depth`, and with `--period` its `runs`",
            "edges": "one for each `after`: `upstream`, `downstream`, `periods`",
            "unknown": "upstreams that are not in the store",
            "isCut": "whether there are more pipelines than shown",
        },
    ),
    Record(
        ("probe list",),
        "probeResult",
        "one for each stored result, and one for each probe without any",
        {
            "pipeline": "the pipeline's id",
            "key": "the probe's key",
            "period": "the period of the result; null if it is for every period",
            "valid": "whether rules may use it",
            "result": "what the probe found last; null if it never found anything",
            "checkedAt": "when the stored result was last confirmed, in UTC",
            "changedAt": "when its content last changed, in UTC",
            "staleAt": "when it is no longer valid, in UTC",
            "failure": "why the last requests failed; null if they did not",
            "failingSince": "since when they fail, in UTC",
        },
    ),
    Record(("sensor remove",), "removed", "the sensor that was removed", _SENSOR),
    Record(
        ("runs rerun", "runs cancel"),
        "bulk",
        "first, unless `--dry-run`",
        {"id": "the id for `--resume`", "action": "`rerun` or `cancel`", "runs": "how many runs it is about"},
    ),
    Record(("runs rerun",), "rerun", "one for each run", {**_BULK_RUN, **_BULK_MORE}, frozenset(_BULK_MORE)),
    Record(("runs cancel",), "cancel", "one for each run", {**_BULK_RUN, **_BULK_MORE}, frozenset(_BULK_MORE)),
    Record(
        ("runs rerun", "runs cancel"),
        "end",
        "the last record",
        {
            "count": "how many runs",
            "complete": "whether every matching run was selected and dealt with",
            "accepted": "with `--dry-run`: how many would be accepted",
            "requested": "how many were requested",
        },
        frozenset({"accepted", "requested"}),
    ),
    Record(
        ("runs delete",),
        "deletion",
        "one record",
        {
            **_RUN,
            "deleted": "whether it was deleted; false with `--dry-run`",
            "wasDeleted": "whether it had been deleted before",
            "rows": "how many rows about the run were removed",
            "historyRows": "how many rows of its job log and rerun record were removed",
            "forgotten": "whether the next change of its sensor starts it again",
        },
    ),
    Record(("reruns list",), "rerun", "one for each", {**_LISTED, "accepted": "false if it was rejected"}),
    Record(("replays list",), "replay", "one for each", {**_LISTED, "accepted": "false if it was rejected"}),
    Record(("late-data list",), "lateData", "one for each", _LISTED),
    Record(
        ("reruns list", "replays list", "late-data list"),
        "end",
        "the last record",
        {"count": "how many were listed", "complete": "false if the list was cut", "next": "always null"},
    ),
    Record(
        ("logs",),
        "output",
        "one for each line",
        {"attempt": "the attempt that printed it", "line": "the line, without secrets and control characters"},
    ),
    Record(
        ("logs",),
        "location",
        "if the output is not on this machine",
        {"attempt": "the attempt", "location": "where the output is; null if no job is known"},
    ),
    Record(
        ("logs",),
        "truncated",
        "before the output, if earlier lines are left out",
        {"what": "what was cut", "shown": "how many lines follow"},
    ),
    Record(("rerun",), "rerun", "one record", {**_REQUEST, "reason": "the reason given"}),
    Record(("cancel",), "cancel", "one record", {**_REQUEST, "reason": "the reason given"}),
    Record(
        ("trigger",),
        "trigger",
        "one record",
        {**_REQUEST, "reason": "the reason given", "requestedBy": "who asked for it"},
    ),
    Record(("replay",), "replay", "one for each period", _REQUEST),
    Record(("replay",), "follows", "with `--downstream`, first, one for each run below", _RUN_BELOW),
    Record(("cascade",), "cascade", "one record", {**_REQUEST, "reason": "the reason given"}),
    Record(
        ("pause",),
        "pause",
        "one record",
        {"pipeline": "the pipeline's id", "reason": "the reason given", "until": "when it ends; null: until resumed"},
    ),
    Record(
        ("resume",),
        "resume",
        "one record",
        {
            "pipeline": "the pipeline's id",
            "reason": "the reason of the pause; null if there was none",
            "until": "when the pause would have ended; null without an end",
            "wasPaused": "whether the pipeline was paused",
        },
    ),
    Record(
        ("settings",),
        "setting",
        "one for each setting",
        {
            "name": "the variable",
            "value": "the value in force; null if it is secret or empty",
            "origin": "where the value comes from",
            "isSet": "whether it differs from the default",
            "isSecret": "whether the value is never shown",
            "default": "the default; null without one",
            "usedBy": "which workers and commands use it",
            "description": "what it does",
            "problem": "why the value is invalid; null if it is valid",
            "noEffect": "why it has no effect here; null if it has one",
        },
    ),
    Record(
        ("doctor",),
        "diagnosis",
        "one for each check",
        {
            "area": "the area, for example `store`",
            "subject": "what was checked",
            "health": "`ok`, `warn` or `fail`",
            "finding": "what was found",
            "remedy": "what to do; empty if `ok`",
            "proven_by": "the call that proved it; may be empty",
        },
    ),
    Record(
        ("doctor",),
        "summary",
        "the last record",
        {"ok": "how many passed", "warn": "how many warnings", "fail": "how many failed"},
    ),
    Record(
        ("dlq list", "dlq show"),
        "deadletter",
        "one for each dead letter, oldest first; `body` only with `dlq show`",
        {
            "source": "where the record came from",
            "id": "the dead letter's id",
            "at": "when it was kept",
            "reason": "why it could not be processed",
            "history": "the reasons of earlier tries",
            "key": "the row that the record is about; later changes to it wait",
            "body": "the record itself",
        },
        frozenset({"body"}),
    ),
    Record(
        ("leases",),
        "session",
        "one for each worker",
        {
            "id": "the session's id",
            "state": "the session's state",
            "beat": "its heartbeat counter",
            "duties": "its roles",
            "heardAt": "the time of its last heartbeat",
        },
    ),
    Record(
        ("leases",),
        "lease",
        "one for each lease",
        {
            "stream": "the stream, the buckets or the periodic tasks",
            "shard": "the shard, bucket or task",
            "status": "the lease's status",
            "holder": "the session that holds it; null if none does",
            "epoch": "the number of its holder in sequence",
            "checkpoint": "the position up to which everything is handled",
            "doneUpTo": "the time of that position; null if unknown",
            "rate": "its records per second",
            "weight": "what it counts in the placement",
            "parents": "shards that must be read before it",
            "children": "shards that follow it",
            "wantedBy": "the session that it is handed to; null if none",
            "deaths": "how many workers died at this position",
            "plan": "what happens to it next",
        },
    ),
    Record(
        ("alerts test",),
        "alertTest",
        "one for each target",
        {
            "target": "the target, and its owner after a dot if the owner has an address of its own",
            "accepted": "whether the target accepted the test message",
            "reason": "why it did not; null if it did",
            "durationMs": "how long it took",
        },
    ),
    Record(
        ("archive",),
        "archivedWindow",
        "one for each window that was written",
        {
            "start": "when the window begins",
            "end": "when it ends",
            "events": "how many events were in it",
            "runs": "how many runs ended in it",
            "objects": "how many objects were written",
            "again": "whether this was the second reading, which writes only what changed",
        },
    ),
    Record(
        ("archive",),
        "archive",
        "the last record",
        {
            "target": "where the archive is",
            "upTo": "up to which time it is written; null if nothing was due",
            "events": "how many events were archived",
            "runs": "how many runs",
            "objects": "in how many objects",
        },
    ),
    Record(
        ("watchdog run",),
        "check",
        "one for each check",
        {
            "check": "the check's name",
            "findings": "what it found",
            "looked": "how many findings, routine ones included",
            "leftOut": "how much it left for the next time",
            "problems": "why it could not check everything",
            "dryRun": "whether nothing was done about it",
        },
    ),
    Record(
        ("watchdog list",),
        "watchdog-check",
        "one for each check",
        {
            "check": "the check's name",
            "everySeconds": "its interval",
            "last": "when it ended last",
            "next": "about when it runs next",
            "problem": "why it failed; empty if it did not",
        },
    ),
    Record(
        ("migrate check",),
        "finding",
        "one for each finding",
        {
            "pipeline": "the pipeline's id",
            "topic": "the topic: see [migration](../migration.md)",
            "weight": "`understood`, `changes` or `refused`",
            "what": "what was found",
            "remedy": "what to do; may be empty",
        },
    ),
    Record(
        ("migrate check",),
        "summary",
        "the last record",
        {
            "pipelines": "how many pipelines",
            "understood": "how many findings mean the same here",
            "changes": "how many mean something else here",
            "refused": "how many will not be used",
        },
    ),
    Record(
        ("migrate accept",),
        "pipeline",
        "one for each pipeline",
        {"id": "the pipeline's id", "done": "what was done", "dryRun": "whether nothing was written"},
    ),
    Record(
        ("migrate compare",),
        "run",
        "one for each run that differs; all runs with `--all`",
        {
            "run": "the run: pipeline, schedule and period",
            "result": "`agreed`, `waiting`, `ours-only` or `theirs-only`",
            "why": "why they differ",
            "oursAt": "when Interlock would have started it",
            "theirsAt": "when the other system started it",
        },
    ),
    Record(
        ("migrate compare",),
        "summary",
        "the last record",
        {
            "since": "since when both are compared",
            "leftOut": "how many pipelines could not be compared",
            "agreed": "how many runs agree",
            "waiting": "how many are not decided yet",
            "ours-only": "how many only Interlock would have started",
            "theirs-only": "how many only the other system started",
        },
    ),
    Record(
        (
            "status",
            "events",
            "schedule next",
            "schedule missed",
            "sensor list",
            "probe list",
            "ledger show",
            "inbox parts",
        ),
        "truncated",
        "the last record of a list that was cut",
        _TRUNCATED,
    ),
)
# Commands whose --json prints a document, or the records that the page of the HTTP API describes.
DOCUMENTS: Final = frozenset({"pipelines show", "runs list", "runs show", "runs stats"})


def undocumented(words: Sequence[str], output: str) -> list[str]:
    """Return what a command printed with --json that no record above describes."""
    command = command_of(words)
    if "--json" not in words or command in DOCUMENTS:
        return []
    return [problem for line in output.splitlines() for problem in _problems(command, line)]


def command_of(words: Sequence[str]) -> str:
    known = {command for record in RECORDS for command in record.commands} | DOCUMENTS
    return next((name for name in (" ".join(words[:2]), *words[:1]) if name in known), " ".join(words[:2]))


def _problems(command: str, line: str) -> list[str]:
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return [f"`interlock {command} --json` printed no JSON: {line}"]
    kinds = [record for record in RECORDS if command in record.commands and record.type == found.get("type")]
    if not kinds:
        return [f"`interlock {command} --json` printed a record of the type {found.get('type')!r}"]
    # A command may print two forms of a type: the one that fits best is meant.
    closest = min((list(_differences(record, found)) for record in kinds), key=len)
    return [f"`interlock {command} --json`: `{found['type']}` {difference}" for difference in closest]


def _differences(record: Record, found: Mapping[str, Any]) -> Iterator[str]:
    known = {"type", *record.fields}
    yield from (f"has `{name}`" for name in found if name not in known)
    yield from (f"lacks `{name}`" for name in sorted(known - record.optional - set(found)))
