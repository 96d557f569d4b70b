"""What a job was started on and what it returned, in the size in which both are kept."""

from collections.abc import Mapping
from dataclasses import dataclass

from worker.core.model.values import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInput:
    """Holds one input by its hash. `data` is None if it was too large to keep; then `size` has its bytes."""

    content_hash: str
    data: Mapping[str, Json] | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInputs:
    """Holds what the job of an attempt was started on, by the stored keys of its sensors."""

    attempt: int
    inputs: Mapping[str, JobInput]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutputs:
    """Holds what the job of an attempt returned. `is_cut`: it was too large, and `value` is its beginning as text."""

    attempt: int
    value: Json
    is_cut: bool = False
