"""Variables reach every text of every target: a field that is added later is covered without being named here."""

from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, cast, get_args, get_origin

import pytest
from pydantic import BaseModel

from tests.support.builders.values import a_run
from worker.core.model.values import Json
from worker.jobs.specs import JOB_CONFIGS, Auth, JobConfig
from worker.jobs.templates import filled_in

# A text that every field takes, also one that wants an address.
WRITTEN, SENT = "https://example.org/${DATE}", "https://example.org/2026-03-10"


def samples(kind: object) -> list[Json]:
    """Values of a kind whose every text is the variable, one for each form the kind may take; none without texts."""
    if kind is str:
        return [WRITTEN]
    if kind is object:  # anything JSON can say
        return [WRITTEN, [WRITTEN, {"deep": WRITTEN}]]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [model_sample(kind)]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return samples(arguments[0])
    if origin in {Union, UnionType}:
        return [sample for argument in arguments if argument is not NoneType for sample in samples(argument)]
    if origin is dict:
        return [{"key": sample} for sample in samples(arguments[1])]
    if origin is list:
        return [[sample] for sample in samples(arguments[0])]
    assert origin is Literal or kind in {int, bool}, f"texts of {kind} are not covered: say here how to make one"
    return []


def model_sample(model: type[BaseModel]) -> dict[str, Json]:
    fields = {field.alias or name: samples(field.annotation) for name, field in model.model_fields.items()}
    needed: dict[str, Json] = {"type": "basic"} if model is Auth else {}
    return {**needed, **{name: found[0] for name, found in fields.items() if found}}


CASES = [
    pytest.param(model, str(field.alias), sample, id=f"{kind}.{field.alias}-{number}")
    for kind, model in JOB_CONFIGS.items()
    for field in model.model_fields.values()
    for number, sample in enumerate(samples(field.annotation))
]


def texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from texts(member)
    elif isinstance(value, Sequence):
        for member in value:
            yield from texts(member)


@pytest.mark.parametrize(("model", "name", "sample"), CASES)
def test_every_text_of_every_target_may_hold_variables(model: type[JobConfig], name: str, sample: Json) -> None:
    stored = cast(
        "dict[str, Json]", model.model_validate({name: sample}).model_dump(by_alias=True, exclude_defaults=True)
    )
    assert WRITTEN in set(texts(stored[name]))

    sent = filled_in(stored, a_run())

    assert set(texts(sent[name])) - {"basic"} == {SENT}
    assert model.model_validate(sent)


def test_every_target_has_texts_to_look_at() -> None:
    seen = {case.values[0] for case in CASES}

    assert seen == set(JOB_CONFIGS.values())
