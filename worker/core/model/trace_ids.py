"""Trace ids: the names of a run's spans, computed from the run, the same by every worker.

Nothing about a trace is stored. A run that one worker began and another ended is one trace, and a job can be told its
parent span before that span ends.
"""

import hashlib
from typing import Final

_SAMPLED: Final = "01"


def trace_id(run_id: str) -> str:
    """Return the id of a run's trace: 32 hexadecimal digits, never all zero."""
    return hashlib.sha256(f"trace {run_id}".encode()).hexdigest()[:32]


def span_id(run_id: str, attempt: int, part: str) -> str:
    """Return the id of a part of an attempt: 16 hexadecimal digits."""
    return hashlib.sha256(f"span {run_id} {attempt} {part}".encode()).hexdigest()[:16]


def traceparent(run_id: str, attempt: int) -> str:
    """Return the W3C header that makes a job's own spans children of its attempt's span `job`."""
    return f"00-{trace_id(run_id)}-{span_id(run_id, attempt, 'job')}-{_SAMPLED}"
