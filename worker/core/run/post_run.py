"""Post-run rules: what sensors mean for a running or ended job, and a guard against old images."""

from collections.abc import Mapping
from datetime import datetime

from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType, JobEvent
from worker.core.model.values import Json
from worker.core.run.context import Context
from worker.core.run.decision import Decision, ignore
from worker.core.run.drift import Drift
from worker.core.run.effects import Effect, LogJob, NoteChange, NotePostRun, NoteSignal, PutRerunRequest
from worker.core.run.facts import PostRunSeen, SensorSignal
from worker.core.run.reruns import DATA_DRIFT, LATE_DATA
from worker.core.run.state import DryRun, Outcome, Run, State
from worker.core.time.periods import sensor_keys
from worker.core.time.skew import SKEW_MAX

TOLD_AT_MAX = 32


def is_old_image(image_at: datetime | None, *, read_at: datetime | None, told_at: datetime | None) -> bool:
    """Return whether something later than the image is known. `image_at` None: it is the row itself.

    `read_at` is the earliest time at which the sensors were read for the start, by the worker's clock, which may differ
    from the store's. `told_at` is when the last reported content of this sensor was written, by the store's clock. Two
    contents written at the same time are both reported: a repeat is better than a loss.
    """
    if image_at is None:
        return False
    is_before_start = read_at is not None and image_at < read_at - SKEW_MAX
    return is_before_start or (told_at is not None and image_at < told_at)


def noted(told_at: Mapping[str, datetime], sensor_key: str, at: datetime | None) -> dict[str, datetime]:
    """Record when the reported content was written, for the latest sensors. `at` None: unknown."""
    others = {key: told for key, told in told_at.items() if key != sensor_key}
    latest = max((told for told in (at, told_at.get(sensor_key)) if told is not None), default=None)
    if latest is None:
        return others
    return dict([*others.items(), (sensor_key, latest)][-TOLD_AT_MAX:])


def with_newest(known: Mapping[str, str], key: str, content_hash: str, at_most: int) -> dict[str, str]:
    """Record a sensor's content hash as the newest one, and leave out the oldest beyond `at_most`."""
    others = [(other, of) for other, of in known.items() if other != key]
    return dict([*others, (key, content_hash)][-at_most:])


def drift_in_flight(context: Context, fact: PostRunSeen) -> Decision:
    """Emit an early event that the data moved under a running job; the job's end decides what follows."""
    drift = fact.drift
    if _is_outdated(context, fact):
        return _outdated(fact)
    if is_from_before(context, fact.sensor_key, fact.image_at):
        return _from_before(fact.sensor_key)
    if _is_seen(context, fact):
        return _repeat(fact)
    noted = NotePostRun(fact.sensor_key, fact.content_hash, fact.written_at)
    if drift is None or not drift.is_beyond:
        is_input = context.run.started_on.get(fact.known_as) not in {None, fact.content_hash}
        # A success that was decided without this content must not be committed.
        return Decision.of(noted) if is_input else ignore("what the job writes is its baseline when it is done")
    message = f"{context.run.key}: {drift.field} of {drift.sensor_key} moved by {drift.delta} while the job runs"
    return Decision.of(
        noted,
        NoteChange(fact.sensor_key, fact.content_hash, fact.written_at),
        EmitEvent(
            type=EventType.POST_RUN_DRIFT_INFLIGHT,
            message=message,
            detail={**drift.detail(), "source": "post-run-stream"},
        ),
    )


def judge_post_run(context: Context, fact: PostRunSeen) -> Decision:
    if context.run.state is not State.COMPLETED:
        return ignore("the run did not succeed: there is nothing to compare")
    if _is_outdated(context, fact):
        return _outdated(fact)
    if _is_seen(context, fact):
        return _repeat(fact)
    if is_from_before(context, fact.sensor_key, fact.image_at) or _is_as_at_start(context, fact):
        return _from_before(fact.sensor_key)
    noted = NotePostRun(fact.sensor_key, fact.content_hash, fact.written_at)
    if fact.drift is not None and fact.drift.is_beyond:
        told = tell_drift(context, fact.drift, fact.sensor_key, "after the run")
        return Decision.of(noted, told, request_rerun(context, DATA_DRIFT, fact.content_hash))
    return Decision.of(noted, tell_post_run(context, fact.reason, held=fact.rules_held))


def tell_post_run(context: Context, reason: str, *, held: bool) -> EmitEvent:
    if held:
        return EmitEvent(type=EventType.POST_RUN_PASSED, message=f"{context.run.key}: the post-run rules hold")
    message = f"{context.run.key}: the post-run rules do not hold: {reason}"
    hint = "check the result before others use it; fix it and rerun"
    return EmitEvent(type=EventType.POST_RUN_FAILED, message=message, detail={"actionHint": hint})


def judge_signal(context: Context, signal: SensorSignal) -> Decision:
    """Decide by its content whether a trigger sensor of an ended run is late data.

    How often it is delivered does not matter.
    """
    if not _is_late(context, signal):
        return ignore(f"{signal.sensor_key} says nothing that the run did not know")
    reason = f"{signal.sensor_key} changed after the run had ended"
    told = Decision.of(
        NoteSignal(signal.content_hash, signal.said_by, signal.written_at),
        LogJob(event=JobEvent.LATE_DATA_ARRIVAL, message=reason),
        EmitEvent(
            type=EventType.LATE_DATA_ARRIVAL,
            message=f"{context.run.key}: {reason}",
            detail={"sensorKey": signal.sensor_key},
        ),
    )
    if context.run.outcome is Outcome.EXHAUSTED and not context.schedule.evaluation.reopen:
        return told
    return told.also(request_rerun(context, LATE_DATA, signal.content_hash))


def _is_late(context: Context, signal: SensorSignal) -> bool:
    run = context.run
    if run.state is not State.COMPLETED and run.outcome is not Outcome.EXHAUSTED:
        return False
    if not is_news(context, signal) or run.changed_inputs.get(signal.said_by) == signal.content_hash:
        return False
    if run.started_on or run.outcome is Outcome.EXHAUSTED:
        return is_since_start(run, signal)
    # The inputs of the start are unknown, as for another system's run, or no evaluation reads them. Then only the time
    # can show whether the sensor is late.
    known_at = run.since if run.outcome is None else run.attempt_began_at
    return signal.written_at is not None and signal.written_at > known_at


def is_news(context: Context, signal: SensorSignal) -> bool:
    """Return whether a trigger sensor's content is new to the run.

    It is not new if the job was started on it, or if it is the run's first or the last reported as late.
    """
    run = context.run
    if signal.content_hash == run.started_on.get(signal.sensor_key):
        return False
    if signal.content_hash == run.late_reported and not _is_back(context, signal):
        return False
    return not is_from_before(context, signal.said_by, signal.image_at)


def is_since_start(run: Run | DryRun, signal: SensorSignal) -> bool:
    """Return whether a trigger sensor that differs from the start was written since the start.

    A sensor that an evaluation reads was. One that it does not read, such as another key with the same prefix, may have
    existed before, and every resync finds it again: then only its write time can show it. That is by the store's clock,
    perhaps in whole seconds; if it is close to the start, a repeat is better than a loss. A dry run starts when its
    rules hold.
    """
    if signal.said_by in {"", *sensor_keys(signal.sensor_key, run.key.period)}:
        return True
    began_at = run.since if isinstance(run, DryRun) else run.attempt_began_at
    if signal.written_at is None or signal.written_at <= began_at - SKEW_MAX:
        return False
    told_at = run.told_at.get(signal.said_by)
    return told_at is None or signal.written_at > told_at or signal.written_at > began_at


def _is_back(context: Context, signal: SensorSignal) -> bool:
    """Return whether a content from before the start was written again since then.

    The job was started on another content. Only a current row that was written after the attempt began proves it. A
    repeat of the first record does not, nor does a sensor that the evaluation did not read.
    """
    run = context.run
    if signal.image_at is not None or signal.sensor_key not in run.started_on or run.late_attempt == run.attempt:
        return False
    return signal.written_at is not None and signal.written_at > run.attempt_began_at + SKEW_MAX


def tell_drift(context: Context, drift: Drift | None, sensor_key: str, when: str) -> EmitEvent:
    """Build the drift event. `drift` is None if the sensor's row names another period by now.

    Then it is unknown how far the value moved.
    """
    source: dict[str, Json] = {"sensorKey": sensor_key, "source": "post-run-stream"}
    if drift is None:
        message = f"{context.run.key}: {sensor_key} moved {when}, beyond the threshold"
        return EmitEvent(type=EventType.POST_RUN_DRIFT, message=message, detail=source)
    message = f"{context.run.key}: {drift.field} of {drift.sensor_key} moved by {drift.delta} {when}"
    return EmitEvent(type=EventType.POST_RUN_DRIFT, message=message, detail={**drift.detail(), **source})


def request_rerun(context: Context, reason: str, cause: str) -> Effect:
    if excluded := context.excluded:
        message = f"{context.run.key} is not run again for {reason}: {excluded}"
        return EmitEvent(type=EventType.PIPELINE_EXCLUDED, message=message)
    return PutRerunRequest(reason=reason, requested_at=context.now, id=cause)


def is_from_before(context: Context, sensor_key: str, image_at: datetime | None) -> bool:
    """Return whether an image is older than the start's inputs, or than the last report of its sensor.

    For another system's run, the inputs of the start are unknown.
    """
    run = context.run
    read_at = run.attempt_began_at if run.started_on else None
    return is_old_image(image_at, read_at=read_at, told_at=run.told_at.get(sensor_key))


def _is_as_at_start(context: Context, fact: PostRunSeen) -> bool:
    """Return whether the sensor has had only its content from the start; a return to it would be new."""
    run = context.run
    return fact.sensor_key not in run.post_run_seen and run.started_on.get(fact.known_as) == fact.content_hash


def _from_before(sensor_key: str) -> Decision:
    return ignore(f"{sensor_key} says what it said before the job was started, or before it was last heard")


def _is_outdated(context: Context, fact: PostRunSeen) -> bool:
    """Return whether the run, and perhaps its baseline, changed after the comparison.

    The caller that compared repeats the comparison.
    """
    return fact.run_version is not None and fact.run_version != context.run.version


def _outdated(fact: PostRunSeen) -> Decision:
    return ignore(f"{fact.sensor_key} was compared when the run was at version {fact.run_version}, which is over")


def _is_seen(context: Context, fact: PostRunSeen) -> bool:
    return context.run.post_run_seen.get(fact.sensor_key) == fact.content_hash


def _repeat(fact: PostRunSeen) -> Decision:
    return ignore(f"{fact.sensor_key} was judged with this content already")
