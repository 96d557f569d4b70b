"""Defines the `config` of each type of probe, as `worker/jobs/specs.py` does for jobs."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from worker.core.model.probes import ProbeType
from worker.jobs.specs import Auth, JobConfig, JsonMap, TextMap, Url, shape_tag

LISTED_MAX = 1000


class HttpProbeConfig(JobConfig):
    required = ("url",)

    url: Url = Field(default="", description="What is asked.")
    method: Literal["GET", "POST"] = Field(
        default="GET", description="POST sends pipeline, schedule, period and `parameters` as JSON."
    )
    headers: TextMap = Field(default_factory=dict, description="Request headers; refer to secrets: `${INTERLOCK_…}`.")
    auth: Auth | None = Field(default=None, description="How requests are authenticated, as for http jobs.")
    parameters: JsonMap = Field(default_factory=dict, description="Sent as `config` in the body of a POST.")


class CommandProbeConfig(JobConfig):
    required = ("command",)

    command: Annotated[
        Annotated[str, Tag("<text>")] | Annotated[list[str], Tag("<list>")],
        Discriminator(shape_tag),
    ] = Field(default="", description="The program and its arguments: a list, or text split at spaces. No shell.")
    environment: TextMap = Field(default_factory=dict, description="Further environment variables.")
    working_directory: str = Field(default="", description="Where the program runs.")
    parameters: JsonMap = Field(default_factory=dict, description="Sent as `config` on standard input.")


class S3ProbeConfig(JobConfig):
    required = ("bucket",)
    either = ("key", "prefix")

    bucket: str = Field(default="", description="The bucket.")
    key: str = Field(default="", description="One object.", examples=["exports/${DATE}/orders.csv"])
    prefix: str = Field(default="", description="All objects whose key begins with this.")
    max_objects: int = Field(
        default=LISTED_MAX, ge=1, le=10_000, description="With `prefix`: stop counting at this many objects."
    )


class GluePartitionProbeConfig(JobConfig):
    required = ("database", "table", "values")

    database: str = Field(default="", description="Database of the catalogue.")
    table: str = Field(default="", description="Table of the catalogue.")
    values: list[str] = Field(
        default_factory=list, description="Values of the partition keys, in order.", examples=[["${DATE}"]]
    )
    catalog_id: str = Field(default="", description="Another account's catalogue.")


class DynamodbItemProbeConfig(JobConfig):
    required = ("table", "key")

    table: str = Field(default="", description="The table.")
    key: JsonMap = Field(default_factory=dict, description="The item's key: `{pk: feed, day: ${DATE}}`.")
    fields: list[str] = Field(default_factory=list, description="Attributes to read. Default: all.")


class SqlProbeConfig(JobConfig):
    required = ("engine", "query")
    needing = (("engine", "athena", "database"), ("engine", "sqlite", "path"), ("engine", "postgresql", "url"))

    engine: Literal["", "sqlite", "postgresql", "athena"] = Field(default="", description="The database system.")
    query: str = Field(default="", description="A query that returns one row.")
    parameters: list[str | int | float | None] = Field(
        default_factory=list, description="Values of the query's parameters: `?`, in PostgreSQL `$1`, `$2`."
    )
    url: str = Field(
        default="",
        description="PostgreSQL: the server and the database, with user and password.",
        examples=["${INTERLOCK_WAREHOUSE_URL}"],
    )
    path: str = Field(default="", description="SQLite: the file.")
    database: str = Field(default="", description="Athena: the database.")
    work_group: str = Field(default="", description="Athena: the work group. Default: primary.")
    output: str = Field(default="", description="Athena: where results go, unless the work group says.")


PROBE_CONFIGS: Mapping[ProbeType, type[JobConfig]] = {
    ProbeType.HTTP: HttpProbeConfig,
    ProbeType.COMMAND: CommandProbeConfig,
    ProbeType.S3: S3ProbeConfig,
    ProbeType.GLUE_PARTITION: GluePartitionProbeConfig,
    ProbeType.DYNAMODB_ITEM: DynamodbItemProbeConfig,
    ProbeType.SQL: SqlProbeConfig,
}
