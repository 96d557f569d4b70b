"""Hides what looks like a secret in a configuration that is shown."""

from collections.abc import Mapping, Sequence
from typing import cast

from worker.core.model.templates import SECRET_PREFIX
from worker.core.model.values import Json
from worker.jobs.secrets import MANAGED
from worker.runtime.logs import REDACTED, is_secret_name, redacted_text


def without_secrets(value: Json, name: str = "") -> Json:
    """Return a value without secrets that are written out. References to secrets stay."""
    if isinstance(value, str):
        is_reference = f"${SECRET_PREFIX}" in value or f"${{{SECRET_PREFIX}" in value or value.startswith(MANAGED)
        if is_reference or not value:
            return value
        return REDACTED if is_secret_name(name) else redacted_text(value)
    if isinstance(value, Mapping):
        return {key: without_secrets(member, key) for key, member in cast("Mapping[str, Json]", value).items()}
    if isinstance(value, Sequence):
        return [without_secrets(member, name) for member in cast("Sequence[Json]", value)]
    return value
