"""What a job was started on and what it returned, in the size in which both are kept."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from worker.core.model.values import Json

INPUT_BYTES_MAX: Final = 8 * 1024
INPUTS_BYTES_MAX: Final = 64 * 1024
INPUTS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInput:
    """Holds one input by its hash. `data` is None if it was too large to keep; then `size` has its bytes."""

    content_hash: str
    data: Mapping[str, Json] | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInputs:
    """Holds what the job of an attempt was started on, by the stored keys of its sensors.

    `left_out` counts inputs beyond INPUTS_MAX; the run's row has their hashes.
    """

    attempt: int
    inputs: Mapping[str, JobInput]
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutputs:
    """Holds what the job of an attempt returned."""

    attempt: int
    outputs: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadInput:
    """Holds an input as it was read; `size` is its bytes as canonical JSON."""

    key: str
    content_hash: str
    data: Mapping[str, Json]
    size: int


def kept_inputs(attempt: int, read: Iterable[ReadInput]) -> JobInputs:
    """Return inputs in the size in which they are kept: large data is left out, its hash and size stay."""
    inputs: dict[str, JobInput] = {}
    room, left_out = INPUTS_BYTES_MAX, 0
    for each in read:
        if len(inputs) == INPUTS_MAX:
            left_out += 1
            continue
        fits = each.size <= min(INPUT_BYTES_MAX, room)
        room -= each.size if fits else 0
        inputs[each.key] = (
            JobInput(content_hash=each.content_hash, data=each.data)
            if fits
            else JobInput(content_hash=each.content_hash, size=each.size)
        )
    return JobInputs(attempt=attempt, inputs=inputs, left_out=left_out)
