"""What the page of events says beyond the code: when each event is emitted, and what each field of a payload means."""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from worker.core.model.events import EventType as Type
from worker.core.model.values import Json

WHEN: Final[Mapping[str, Mapping[Type, str]]] = {
    "Runs": {
        Type.VALIDATION_PASSED: "the rules of a run pass, and Interlock starts its job",
        Type.VALIDATION_EXHAUSTED: "the evaluation window ends before the rules pass; the run fails without a job",
        Type.JOB_TRIGGERED: "the target has accepted the job of an attempt",
        Type.JOB_COMPLETED: "a run completes, or another system reports that a job succeeded",
        Type.JOB_SUCCESS_UNCHECKED: "a job succeeded, but its confirmation cannot be read; with `JOB_COMPLETED`",
        Type.JOB_FAILED: "an attempt fails",
        Type.JOB_POLL_EXHAUSTED: "a job still runs at the end of its poll window; Interlock stops it",
        Type.RETRY_EXHAUSTED: "a run fails because no retry is left, or because its target rejected every start",
        Type.SFN_TIMEOUT: "a run exceeds `job.runTimeoutSeconds`, or a foreign run the lifetime of its row; it fails",
        Type.JOB_START_UNKNOWN: "a run fails because nobody can tell whether its job was started",
        Type.JOB_ORPHANED: "a job may still be running although its run has ended",
        Type.JOB_ORPHAN_ENDED: "the job that `JOB_ORPHANED` named has ended",
        Type.INFRA_FAILURE: "a target does not respond, a run is damaged, or a pipeline has no job",
        Type.RUN_CANCELLED: "a person cancels a run",
        Type.LATE_DATA_ARRIVAL: "an input changed after the job started",
        Type.ARCHIVE_FAILED: "objects of a completed run could not be archived; they stay where they are",
        Type.RERUN_ACCEPTED: "Interlock accepts a rerun",
        Type.RERUN_REJECTED: "Interlock rejects a rerun",
        Type.PIPELINE_EXCLUDED: "a calendar forbids a run, a rerun or a retry",
        Type.TRIGGER_ACCEPTED: "a person starts a run with `interlock trigger`",
        Type.TRIGGER_REJECTED: "a sensor, a cascade or a person names a period for which no run may start",
        Type.UPSTREAM_FAILED: "a run cannot start because a run that it depends on failed; once for each such run",
        Type.PROBE_FAILED: "a probe that a run waits for has no valid result, and three requests in a row failed",
        Type.GRAIN_MISMATCH: "a sensor names a day where the schedule expects hours or minutes, or the reverse",
    },
    "Deadlines": {
        Type.SLA_WARNING: "a run may miss its deadline",
        Type.SLA_BREACH: "a run did not complete by its deadline",
        Type.SLA_MET: "a run completed before its deadline",
        Type.SLA_WAIVED: "a person cancels a run and its deadline",
        Type.RELATIVE_SLA_WARNING: "as `SLA_WARNING`, for a deadline that counts from the arrival of the data",
        Type.RELATIVE_SLA_BREACH: "as `SLA_BREACH`, for a deadline that counts from the arrival of the data",
        Type.EVALUATION_SLA_BREACH: "the rules of a run did not hold by `sla.evaluationDeadline` or `maxEvaluation`",
    },
    "After the run": {
        Type.POST_RUN_BASELINE_CAPTURED: "Interlock records the values that drift is measured against",
        Type.POST_RUN_PASSED: "the post-run rules pass",
        Type.POST_RUN_FAILED: "the post-run rules do not pass",
        Type.POST_RUN_DRIFT: "a watched value moved beyond its threshold after the run",
        Type.POST_RUN_DRIFT_INFLIGHT: "a watched value moved beyond its threshold while the job runs",
        Type.POST_RUN_SENSOR_MISSING: "a post-run sensor was not written within `postRun.sensorTimeout`",
        Type.DATA_DRIFT: "never by Interlock: other systems publish it, and Interlock sends it to people",
        Type.BASELINE_CAPTURE_FAILED: "never by Interlock: other systems publish it, and Interlock sends it to people",
    },
    "The watchdog": {
        Type.SCHEDULE_MISSED: "a run that its cron expression expects did not start",
        Type.IRREGULAR_SCHEDULE_MISSED: "a run did not start on a date of `include`",
        Type.SENSOR_DEADLINE_EXPIRED: "the sensor of a trigger did not arrive by its deadline; the run fails",
        Type.TRIGGER_RECOVERED: "a sensor should have started a run and did not; the run starts late",
        Type.WATCHDOG_DEGRADED: "a check of the watchdog fails, events wait, or alerts do not arrive",
        Type.WATCHDOG_RECOVERED: "what `WATCHDOG_DEGRADED` named works again",
        Type.WATCHDOG_HEARTBEAT: "at a fixed interval, while the watchdog runs",
        Type.ALERT_PATH_CHECK: "at a fixed interval, to check that an alert would arrive; Interlock receives it itself",
    },
    "Dry runs": {
        Type.DRY_RUN_WOULD_TRIGGER: "the rules pass; Interlock would start the job now",
        Type.DRY_RUN_VALIDATION_EXHAUSTED: "the evaluation window ends before the rules pass",
        Type.DRY_RUN_SLA_PROJECTION: "with `sla.expectedDuration`: says when the job would end",
        Type.DRY_RUN_COMPLETED: "a dry run ends with a job that would have been started",
        Type.DRY_RUN_LATE_DATA: "an input changed after the job would have been started",
        Type.DRY_RUN_DRIFT: "a watched value moved beyond its threshold",
        Type.DRY_RUN_WOULD_RERUN: "Interlock would accept a rerun",
        Type.DRY_RUN_RERUN_REJECTED: "Interlock would reject a rerun",
        Type.DRY_RUN_WOULD_RETRY: "another system reports a failure that Interlock would retry",
        Type.DRY_RUN_RETRY_EXHAUSTED: "another system reports a failure that Interlock would not retry",
    },
    "Configuration and infrastructure": {
        Type.CONFIG_REJECTED: "a stored configuration is invalid; the last valid version stays in force",
        Type.CONFIG_ACCEPTED: "a valid configuration follows a rejected one",
        Type.DATA_LOSS_SUSPECTED: "a stream deleted changes before they were read",
        Type.DATA_RESYNCED: "every pipeline was resynced after `DATA_LOSS_SUSPECTED`",
        Type.OPERATOR_ACTION: "a person or a program requests a change; records who, what and why",
        Type.INFRA_ALARM: "a CloudWatch alarm of the installation changes its state",
    },
}

# Severities that depend on the payload.
VARIANTS: Final[Mapping[Type, tuple[tuple[str, Mapping[str, Json]], ...]]] = {
    Type.JOB_FAILED: (("with `willRetry`", {"willRetry": True}),),
    Type.SFN_TIMEOUT: (("with `orphaned: true`", {"orphaned": True}),),
    Type.PIPELINE_EXCLUDED: (("with `final: true`", {"final": True}),),
    Type.INFRA_ALARM: (("in state `OK`", {"state": {"value": "OK"}}),),
}


class Field(NamedTuple):
    meaning: str
    example: Json


Fields: TypeAlias = Mapping[str, Field]

# Fields that a commit adds, whatever the event.
ADDED: Final[Fields] = {
    "version": Field("the version of the run's row; orders the events of one run", 7),
    "times": Field("how often this alert was emitted, from the second time (`INTERLOCK_REPEAT_ALERTS`)", 2),
    "count": Field("how many runs a summary of the watchdog is about; it names no period of its own", 12),
    "first": Field("the first run of a summary: schedule and period", "cron/2027-03-22T00"),
    "last": Field("the last run of a summary", "cron/2027-03-22T11"),
    "periods": Field("the runs of a summary, at most 20", ["cron/2027-03-22T00", "cron/2027-03-22T01"]),
    "waiting": Field(
        "the runs that wait for this one, the nearest deadline first: at most 20 `runs`, their `total`, and `isCut` if "
        "there may be more; in the event of a run that failed or is late",
        {
            "runs": [{"pipeline": "gold", "schedule": "stream", "period": "2026-03-03", "deadline": None}],
            "total": 1,
            "isCut": False,
        },
    ),
}

FIELDS: Final[Fields] = {
    "summary": Field("what the job counted: `seen`, `processed`, `skipped`, `errored`", {"seen": 120, "processed": 3}),
    "via": Field("how the request arrived", "api"),
    "role": Field("the role of the person or program", "operator"),
    "rule": Field("the inbox rule", "orders-parts"),
    "requestId": Field("the id of the request", "01HTB5K0M3"),
    "forecast": Field("the predicted answer", "accepted"),
    "action": Field("what was requested", "rerun"),
    "actionHint": Field("what a person can do", "fix the cause, then rerun it"),
    "attempt": Field("the number of the attempt", 2),
    "breachAt": Field("the instant of the deadline", "2027-03-22T08:00:00Z"),
    "budget": Field("how many reruns of this kind are allowed", 1),
    "category": Field("the kind of failure: `PERMANENT`, `TRANSIENT` or `TIMEOUT`", "TRANSIENT"),
    "checks": Field("the checks that fail, or work again", ["missed-schedules"]),
    "circuitBreaker": Field("why the check for newer sensors does not apply", "skipped (no job history)"),
    "count": Field("how many objects were not archived", 3),
    "cron": Field("the cron expression", "0 6 * * *"),
    "currentCount": Field("the value now", 1250),
    "deadline": Field("the deadline as configured; in dry runs, its instant", "08:00"),
    "deadlineAt": Field("the instant of the deadline of the trigger or the evaluation", "2027-03-22T07:00:00Z"),
    "degradedSince": Field("when each check began to fail", {"missed-schedules": "2027-03-22T06:00:00Z"}),
    "delta": Field("the difference of the two values", 50),
    "driftField": Field("the field of the sensor that is compared", "count"),
    "driftThreshold": Field("the difference that is allowed", 10),
    "estimatedCompletion": Field("when the job would end", "2027-03-22T07:20:00Z"),
    "evaluationDeadline": Field("`sla.evaluationDeadline`", "05:00"),
    "expected": Field("the grain that the schedule expects: `daily`, `hourly` or `minute`", "hourly"),
    "expectedDuration": Field("`sla.expectedDuration`", "20m"),
    "expectedTime": Field("the time of day at which the run is expected", "06:00"),
    "final": Field("`true`: the run has failed", True),
    "from": Field("the position from which changes are missing", "49590338271490256608"),
    "inForce": Field("the hash of the version in force (64 hex digits); null if there is none", "3f6c1a9b…"),
    "job": Field("what finds the job at its target, by job type; null if unknown", {"runId": "jr_1a2b3c"}),
    "lateBy": Field("how long after the start the data changed", "12m0s"),
    "marginSeconds": Field("seconds from the estimated end to the deadline; negative if too late", 2400),
    "maxDuration": Field("the time allowed from the arrival of the data", "2h"),
    "maxEvaluation": Field("`sla.maxEvaluation`", "45m"),
    "maxRetries": Field("how many retries are allowed", 3),
    "missing": Field(
        "what keeps the rules from holding, at most 20: for each its sensor, what was required and found, and why",
        [{"holds": False, "key": "orders", "reason": "sensor orders is missing or has no data"}],
    ),
    "missingCount": Field("how many conditions were missing", 1),
    "named": Field("the grain of the period that the sensor names", "daily"),
    "noRerun": Field("why no rerun follows", "the trigger's condition is no longer met"),
    "notices": Field("what could not be checked", ["the job's log could not be read"]),
    "orphaned": Field("`true`: the job may still be running; `JOB_ORPHANED` is the alert", True),
    "pipelines": Field("how many pipelines were resynced", 40),
    "probe": Field("the key of the probe", "fx-rates"),
    "probeType": Field("the type of the probe", "http"),
    "failingSince": Field("since when the probe has had no current result", "2027-03-22T07:15:00Z"),
    "previousCount": Field("the value that drift is measured against", 1200),
    "problems": Field("what is wrong: a list, or by check", ["unknown type gleu"]),
    "reason": Field("why", "manual"),
    "requestedBy": Field("who asked for it", "ana"),
    "rerunCount": Field("how many reruns of this kind are used", 0),
    "retries": Field("how many retries are used", 1),
    "ruleKeys": Field("the sensors that are missing, separated by commas", "orders-count"),
    "rulesEvaluated": Field("how many rules passed", 3),
    "sensorArrivalAt": Field("when the first sensor of the run arrived", "2027-03-22T05:58:12Z"),
    "rootCause": Field(
        "the first failed run up the chain of dependencies, with `pipeline`, `schedule`, `period`, `status`, `reason`",
        {
            "pipeline": "bronze-orders",
            "schedule": "stream",
            "period": "2026-03-03",
            "status": "failed",
            "reason": "exit code 3",
        },
    ),
    "upstreams": Field("upstream runs that completed again, at most 5", ["silver-orders/stream/2026-03-03"]),
    "sensorKey": Field("the key of the sensor", "orders-export"),
    "sensorKeys": Field("the keys of all sensors that changed", ["orders-export", "rates"]),
    "sensorTimeout": Field("how long Interlock waited for post-run sensors", "1h"),
    "slaStatus": Field("`met`, `breach`, or `n/a` without a projection", "met"),
    "sound": Field("whether everything that the watchdog checks works", True),
    "source": Field("which part reports this, or the name of a stream", "watchdog"),
    "status": Field("the run's stored status, or `not started`; in dry runs `met` or `breach`", "RUNNING"),
    "succeededAt": Field("when the job succeeded", "2027-03-22T07:31:40Z"),
    "target": Field("the target that does not respond", "glue"),
    "to": Field("the position at which reading continues", "49590338271512557353"),
    "token": Field("the token of the attempt's start, to look for at the target", "il-5f2c1e9d…"),
    "triggerDeadline": Field("the trigger's deadline as configured", "07:00"),
    "triggeredAt": Field("when the job would have been started", "2027-03-22T07:00:00Z"),
    "ttlExpired": Field("when the time of the run was over", "2027-03-22T19:00:00Z"),
    "willRetry": Field("whether Interlock starts another attempt", True),
}
