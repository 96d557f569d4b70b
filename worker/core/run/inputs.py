"""Inputs that change while a job runs: recorded on arrival, compared when the job has succeeded.

A success is decided on sensors that were read after the run's row. The record of a later write is handled either after
the success, as late data of an ended run, or before it. In the second case it is noted on the row, and the success is
stale. A record that is noted already changes nothing, so a success may only rely on a read that agrees with the notes.
If the read does not agree, it is noted first, and the success is decided again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType, JobEvent
from worker.core.model.rules import evaluate_rule
from worker.core.model.values import Json
from worker.core.run.context import Context, not_applicable
from worker.core.run.decision import Decision, ignore
from worker.core.run.drift import Drift, measure
from worker.core.run.effects import Effect, LogJob, NoteChange, NotePostRun, NoteSignal
from worker.core.run.evaluation import post_run_sensors, required_sensors
from worker.core.run.facts import Inputs, RunTriggered, SensorChanged, SensorReading, SensorSignal
from worker.core.run.post_run import is_from_before, is_news, is_since_start, request_rerun, tell_drift, tell_post_run
from worker.core.run.reruns import DATA_DRIFT, LATE_DATA
from worker.core.run.sensor_match import (
    SensorContent,
    is_for_later,
    is_trigger,
    period_named,
    period_said,
    post_run_name,
)
from worker.core.run.state import CHANGED_INPUTS_MAX
from worker.core.time.periods import sensor_keys

DRIFT_TOLD_MAX = 20  # events in one commit, which holds at most 100 rows


def note_input(context: Context, fact: RunTriggered | SensorChanged) -> Decision:
    """Record an input that changed under a running job, at most once for each content."""
    match fact:
        case RunTriggered(signal=signal) if signal is not None:
            return _note_signal(context, signal)
        case SensorChanged(content=content) if content is not None:
            return _note_rule_input(context, content)
        case _:
            return not_applicable(context.run, fact)


def _note_signal(context: Context, signal: SensorSignal) -> Decision:
    run = context.run
    is_known = run.changed_inputs.get(signal.said_by) == signal.content_hash
    if is_known or not is_news(context, signal) or not is_since_start(run, signal):
        return ignore(f"{signal.sensor_key} says nothing that the run did not know")
    return Decision.of(NoteChange(signal.said_by, signal.content_hash, signal.written_at))


def _note_rule_input(context: Context, content: SensorSignal) -> Decision:
    """Record a rule's sensor that changed, for when its row names another period at the end.

    A change back to the content of the start is recorded only if another change was.
    """
    run, key = context.run, content.said_by
    known = run.changed_inputs.get(key, run.started_on.get(content.sensor_key))
    if content.content_hash == known or is_from_before(context, key, content.image_at):
        return ignore(f"{key} says nothing that the run did not know")
    if not run.started_on:
        return ignore(f"it is unknown what {key} was at the start")
    if key not in run.changed_inputs and len(run.changed_inputs) >= CHANGED_INPUTS_MAX:
        return ignore(f"{key} is compared when the job is done")  # its note would replace that of another sensor
    return Decision.of(NoteChange(key, content.content_hash, content.written_at))


@dataclass(frozen=True, slots=True, kw_only=True)
class InputChange:
    """Holds an input that differs from the start. `objection` says why it calls for no rerun."""

    name: str
    key: str
    content_hash: str
    objection: str = ""
    is_signal: bool = False  # the trigger's sensor: its record may still arrive after the end


@dataclass(frozen=True, slots=True, kw_only=True)
class PostRunChange:
    """Holds a post-run sensor that differs from the start. `drift` is None if nothing can be measured.

    With `is_over`, it drifted and its row names another period by now, so that only the note is left of it.
    """

    key: str
    content_hash: str
    drift: Drift | None = None
    is_over: bool = False

    @property
    def is_drifted(self) -> bool:
        return self.is_over or (self.drift is not None and self.drift.is_beyond)


class Comparison:
    """Compares a run's current inputs with those that its job was started on."""

    def __init__(self, context: Context, inputs: Inputs) -> None:
        self._context, self._inputs, self._run = context, inputs, context.run
        trigger = context.schedule.trigger
        self._trigger = trigger if trigger and context.schedule.starts_by_trigger else None
        signal = self._trigger.rule.key if self._trigger else None
        required = required_sensors(context.pipeline, context.schedule)
        # Others decide about the trigger's sensor, and about sensors that post-run rules measure.
        self._rules = [each for each in required if each != signal and post_run_name(context.pipeline, each) is None]
        self.post_run = [*self._post_run_changes()]
        self.late = [*self._late()]

    # --- notes that the row needs first -------------------------------------------------------------------------------

    def unnoted(self) -> list[Effect]:
        """Return the notes that must be written before this comparison may decide.

        They correct notes that differ from what was read. Otherwise a later write of the noted content would count as
        known, and would not make the success stale.
        """
        return [*self._unnoted_trigger(), *self._unnoted_rules(), *self._unnoted_post_run()]

    def _unnoted_trigger(self) -> Iterator[Effect]:
        if self._trigger is None:
            return
        name, noted = self._trigger.rule.key, self._run.changed_inputs
        reading = self._inputs.readings.get(name)
        if reading is None:
            spellings = sensor_keys(name, self._run.key.period)
            yield from (NoteChange(key, "") for key in spellings if noted.get(key))
        elif self._is_of_run(reading) and noted.get(reading.key) not in {None, reading.content_hash}:
            # A change that asks for a rerun may rely on any read, because the rerun reads again.
            asks_for_rerun = self._differs(name, reading) and self._holds(reading)
            yield from () if asks_for_rerun else (NoteChange(reading.key, reading.content_hash),)

    def _unnoted_rules(self) -> Iterator[Effect]:
        for name in self._rules:
            reading, noted = self._inputs.readings.get(name), self._run.changed_inputs
            # One that differs from the start asks for a rerun, which reads again; one that has moved on cannot be read.
            if reading is None or self._is_later(reading) or self._differs(name, reading):
                continue
            if noted.get(reading.key) not in {None, reading.content_hash}:
                yield NoteChange(reading.key, reading.content_hash)

    def _unnoted_post_run(self) -> Iterator[Effect]:
        drifted = {change.key for change in self.post_run if change.is_drifted}
        for name in post_run_sensors(self._context.pipeline):
            reading = self._inputs.readings.get(name)
            if reading is None or reading.key in drifted or not self._is_of_run(reading):
                continue
            if self._run.post_run_seen.get(reading.key) not in {None, reading.content_hash}:
                yield NotePostRun(reading.key, reading.content_hash)

    # --- the trigger and the rules ------------------------------------------------------------------------------------

    def _late(self) -> Iterator[InputChange]:
        # whether the inputs of the start are known; if not, each note came after it
        is_known = bool(self._run.started_on)
        signal = self._trigger.rule.key if self._trigger else None
        # For these, the post-run threshold decides whether a change matters.
        measured = {change.key for change in self.post_run if change.drift is not None}
        for name in required_sensors(self._context.pipeline, self._context.schedule):
            reading = self._inputs.readings.get(name)
            if reading is None:
                if name in self._run.started_on:
                    yield InputChange(name=name, key=name, content_hash="", objection=f"{name} is gone")
            elif name == signal:
                is_noted = bool(self._run.changed_inputs.get(reading.key))
                yield from self._late_signal(name, reading) if is_known or is_noted else ()
            elif not is_known or reading.key in measured or self._is_later(reading):
                continue
            elif self._differs(name, reading):
                yield InputChange(name=name, key=reading.key, content_hash=reading.content_hash)
        yield from self._noted_signals()
        yield from self._noted_rules()

    def _late_signal(self, name: str, reading: SensorReading) -> Iterator[InputChange]:
        if not self._is_of_run(reading) or not self._differs(name, reading):
            return
        objection = "" if self._holds(reading) else f"the trigger's condition on {name} does not hold any more"
        yield InputChange(
            name=name, key=reading.key, content_hash=reading.content_hash, objection=objection, is_signal=True
        )

    def _noted_signals(self) -> Iterator[InputChange]:
        """Return noted trigger sensors that cannot be read again.

        Their row names another period by now, or has another key.
        """
        if self._trigger is None:
            return
        name = self._trigger.rule.key
        for key, content_hash in self._run.changed_inputs.items():
            is_known = content_hash in {"", self._run.started_on.get(name)}
            if is_trigger(self._context.schedule, key) and not is_known and not self._is_read(name, key):
                yield InputChange(name=name, key=key, content_hash=content_hash, is_signal=True)

    def _noted_rules(self) -> Iterator[InputChange]:
        """Return noted sensors of rules whose row names a later period by now."""
        for name in self._rules:
            reading = self._inputs.readings.get(name)
            if reading is None or name not in self._run.started_on or not self._is_later(reading):
                continue
            content_hash = self._run.changed_inputs.get(reading.key, "")
            if content_hash not in {"", self._run.started_on[name]}:
                yield InputChange(name=name, key=reading.key, content_hash=content_hash)

    def _is_read(self, name: str, key: str) -> bool:
        reading = self._inputs.readings.get(name)
        if reading is None:
            return key in sensor_keys(name, self._run.key.period)
        return reading.key == key and self._is_of_run(reading)

    def _holds(self, reading: SensorReading) -> bool:
        return self._trigger is None or evaluate_rule(self._trigger.rule, reading.data, self._context.now).passed

    # --- the post-run sensors -----------------------------------------------------------------------------------------

    def _post_run_changes(self) -> Iterator[PostRunChange]:
        """Return the changed post-run sensors that existed when the job was started.

        Those that the job or others wrote since are the new baseline.
        """
        run, pipeline, read = self._run, self._context.pipeline, set[str]()
        for name in post_run_sensors(pipeline):
            reading = self._inputs.readings.get(name)
            if reading is None or name not in run.started_on or not self._is_of_run(reading):
                continue
            read.add(reading.key)
            if self._differs(name, reading):
                drift = self._drift(name, reading)
                yield PostRunChange(key=reading.key, content_hash=reading.content_hash, drift=drift)
        for key, content_hash in run.changed_inputs.items():
            is_told = key not in read and run.post_run_seen.get(key) == content_hash
            # A sensor that is also a trigger counts as late data.
            if is_told and post_run_name(pipeline, key) and not is_trigger(self._context.schedule, key):
                yield PostRunChange(key=key, content_hash=content_hash, is_over=True)

    def _drift(self, name: str, reading: SensorReading) -> Drift | None:
        post_run, before = self._context.pipeline.post_run, self._inputs.baseline.get(name)
        if post_run is None or not isinstance(before, Mapping):
            return None
        return measure(post_run, reading.key, before, reading.data)

    def post_run_verdict(self) -> list[Effect]:
        """Return the event with the result of the post-run rules on what changed; empty if nothing did."""
        result = self._inputs.post_run
        if result is None or not self.post_run:
            return []
        return [tell_post_run(self._context, "" if result.passed else result.reason, held=result.passed)]

    # --- periods ------------------------------------------------------------------------------------------------------

    def _differs(self, name: str, reading: SensorReading) -> bool:
        return reading.content_hash != self._run.started_on.get(name)

    def _is_of_run(self, reading: SensorReading) -> bool:
        """Return whether a sensor is for the run's period.

        A sensor that names none is for the day on which it was written. That is today if the run is today's. For any
        other day, the handler of its change record has noted it on the run.
        """
        run, said = self._run, SensorContent(reading.key, reading.data)
        if period_said(said, self._context.schedule, self._context.now)[0] == run.key.period:
            return True
        if period_named(said) is not None:
            return False
        known = {run.changed_inputs.get(reading.key), run.post_run_seen.get(reading.key), *run.started_on.values()}
        return reading.content_hash in known

    def _is_later(self, reading: SensorReading) -> bool:
        """Return whether a rule's sensor names a later period than the run's by now."""
        return is_for_later(SensorContent(reading.key, reading.data), self._run.key.period)


def report_changes(context: Context, compared: Comparison, *, judged: bool = False) -> list[Effect]:
    """Report changes under the job as if they had arrived a second after the end: once, with one rerun.

    With `judged`, the result of the post-run rules is reported already.
    """
    late, changed = compared.late, compared.post_run
    drifted = [change for change in changed if change.is_drifted]
    effects = [*_late_data(context, late), *_drift(context, drifted), *_notes(changed)]
    if late and not any(change.objection for change in late):
        return [*effects, request_rerun(context, LATE_DATA, late[-1].content_hash)]
    if drifted:
        return [*effects, request_rerun(context, DATA_DRIFT, drifted[-1].content_hash)]
    return [*effects, *([] if judged else compared.post_run_verdict())]


def _late_data(context: Context, late: list[InputChange]) -> list[Effect]:
    if not late:
        return []
    names = [*dict.fromkeys(change.name for change in late)]
    objections = [*dict.fromkeys(change.objection for change in late if change.objection)]
    reason = f"{', '.join(names)} changed while the job was running"
    if objections:
        reason += f"; no rerun is requested: {'; '.join(objections)}"
    detail: dict[str, Json] = {"sensorKey": names[0], "sensorKeys": [*names], "attempt": context.run.attempt}
    if objections:
        detail["noRerun"] = "; ".join(objections)
    noted = [NoteSignal(change.content_hash, change.key) for change in late if change.is_signal and change.content_hash]
    return [
        *noted,
        LogJob(event=JobEvent.LATE_DATA_ARRIVAL, message=reason),
        EmitEvent(type=EventType.LATE_DATA_ARRIVAL, message=f"{context.run.key}: {reason}", detail=detail),
    ]


def _drift(context: Context, drifted: list[PostRunChange]) -> list[Effect]:
    told = drifted[:DRIFT_TOLD_MAX]
    left_out = len(drifted) - len(told)
    when = "while the job was running" + (f", and so did {left_out} other sensors" if left_out else "")
    return [tell_drift(context, change.drift, change.key, when) for change in told]


def _notes(changed: list[PostRunChange]) -> list[Effect]:
    return [NotePostRun(change.key, change.content_hash) for change in changed]
