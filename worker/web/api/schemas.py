"""The shapes of the API's documents, from which its OpenAPI document is made."""

from datetime import datetime
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

T = TypeVar("T")


class ApiModel(BaseModel):
    """A document of the API: names in camelCase, no field that is not declared."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class FieldProblem(ApiModel):
    """What is wrong at one place of a request's content."""

    where: str
    what: str


class ProblemDocument(ApiModel):
    """An error (RFC 9457). `type` is one of a closed list; programs match on it."""

    type: str = Field(examples=["urn:interlock:problem:unknown-pipeline"])
    title: str
    status: int
    detail: str | None = None
    request_id: str | None = None
    errors: list[FieldProblem] | None = None


class ListPage(ApiModel, Generic[T]):
    """A page of a list. `next` is the cursor of the next page; null if `complete`."""

    items: list[T]
    count: int
    complete: bool
    next: str | None


class WorkerDocument(ApiModel):
    """A worker's session. `heardAt` is its last heartbeat."""

    type: Literal["session"]
    id: str
    state: str
    beat: int
    duties: list[str]
    heard_at: datetime | None


class LeaseDocument(ApiModel):
    """A lease. `plan` says what all workers plan to do with it, and why."""

    type: Literal["lease"]
    stream: str
    shard: str
    status: str
    holder: str | None
    epoch: int
    checkpoint: str | None
    done_up_to: datetime | None
    rate: float
    weight: float
    parents: list[str]
    children: list[str]
    wanted_by: str | None
    deaths: int
    plan: str
