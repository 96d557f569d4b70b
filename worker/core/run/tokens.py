"""The name under which one attempt of a run is known outside: the same after a crash, never used for anything else."""

import hashlib

_DIGITS = 40


def start_token(run_id: str, attempt: int) -> str:
    """Fits every target: at most 64 characters, letters, digits and a dash.

    The run id is random and written when the run's row is made, so a token never repeats, not even for a row that was
    lost and made anew.
    """
    return f"il-{hashlib.sha256(f'{run_id}#{attempt}'.encode()).hexdigest()[:_DIGITS]}"
