"""Asks AWS: objects in S3, partitions of the Glue catalogue, items in DynamoDB."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, cast

from worker.core.model.values import Json
from worker.core.probes.trait import ProbeUnknown
from worker.core.time.timestamps import format_utc
from worker.jobs.aws.client import Aws
from worker.jobs.aws.errors import AwsTrouble
from worker.jobs.aws.responses import Answer, parts, text
from worker.jobs.spec_fields import parse_config
from worker.probes.runner import ProbeRequest, RawResponse
from worker.probes.specs import DynamodbItemProbeConfig, GluePartitionProbeConfig, S3ProbeConfig
from worker.store.dynamodb.values import Attribute, decode_row, encode_value
from worker.store.rows import to_json_map
from worker.store.table import Value

_PAGE: Final = 1000
_SUCCESS: Final = "_SUCCESS"
_ROW_COUNTS: Final = ("recordCount", "numRows")


class S3Probes:
    """Reads the head of one object, or a bounded list of the objects under a prefix."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws

    def target(self, config: Mapping[str, Json]) -> str:
        return f"s3:{config.get('bucket')}"

    async def ask(self, request: ProbeRequest) -> RawResponse | ProbeUnknown:
        config = parse_config(S3ProbeConfig, request.config)
        if config.key:
            return await self._head(config.bucket, config.key)
        return await self._list(config)

    async def _head(self, bucket: str, key: str) -> RawResponse:
        try:
            found = await self._aws.call("s3", "HeadObject", {"Bucket": bucket, "Key": key})
        except AwsTrouble as problem:
            if problem.code in {"404", "NoSuchKey", "NotFound"}:
                return RawResponse(value={"exists": False, "count": 0, "bytes": 0})
            raise
        value: dict[str, Json] = {
            "exists": True,
            "count": 1,
            "bytes": cast("int", found.get("ContentLength", 0)),
            "newest": _time(found.get("LastModified")),
            "etag": text(found, "ETag").strip('"'),
        }
        return RawResponse(value=value)

    async def _list(self, config: S3ProbeConfig) -> RawResponse:
        asked = {"Bucket": config.bucket, "Prefix": config.prefix, "MaxKeys": min(_PAGE, config.max_objects)}
        pages_max = -(-config.max_objects // _PAGE)
        count, size, newest, has_success, is_cut = 0, 0, None, False, False
        while pages_max > 0:
            page = await self._aws.call("s3", "ListObjectsV2", asked)
            for each in parts(page, "Contents"):
                name = text(each, "Key").removeprefix(config.prefix)
                has_success = has_success or name.rpartition("/")[2] == _SUCCESS
                if name.rpartition("/")[2] in {"", _SUCCESS}:
                    continue  # a marker, not data
                count, size = count + 1, size + cast("int", each.get("Size", 0))
                newest = max(filter(None, (newest, _time(each.get("LastModified")))), default=None)
            more = text(page, "NextContinuationToken")
            pages_max, is_cut = pages_max - 1, bool(more)
            if not more:
                break
            asked["ContinuationToken"] = more
        value: dict[str, Json] = {"exists": count > 0, "count": count, "bytes": size, "success": has_success}
        value |= {"newest": newest} if newest else {}
        return RawResponse(value={**value, "truncated": True} if is_cut else value)


class GluePartitionProbes:
    """Reads one partition of a catalogue table."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws

    def target(self, config: Mapping[str, Json]) -> str:  # noqa: ARG002 - the port requires it
        return "glue-partition"

    async def ask(self, request: ProbeRequest) -> RawResponse | ProbeUnknown:
        config = parse_config(GluePartitionProbeConfig, request.config)
        asked: dict[str, object] = {
            "DatabaseName": config.database,
            "TableName": config.table,
            "PartitionValues": config.values,
            **({"CatalogId": config.catalog_id} if config.catalog_id else {}),
        }
        try:
            answer = await self._aws.call("glue", "GetPartition", asked)
        except AwsTrouble as problem:
            # The same code says that the table or the database does not exist: that shows nothing about the data.
            if problem.code == "EntityNotFoundException" and "artition" in str(problem).rpartition("GetPartition")[2]:
                return RawResponse(value={"exists": False})
            raise
        found = cast("Answer", answer.get("Partition") or {})
        parameters = cast("Mapping[str, str]", found.get("Parameters") or {})
        rows = next((parameters[name] for name in _ROW_COUNTS if parameters.get(name, "").isdecimal()), None)
        value: dict[str, Json] = {"exists": True}
        if created := _time(found.get("CreationTime")):
            value["createdAt"] = created
        return RawResponse(value=value if rows is None else {**value, "rows": int(rows)})


class DynamodbItemProbes:
    """Reads one item, consistently."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws

    def target(self, config: Mapping[str, Json]) -> str:
        return f"dynamodb-item:{config.get('table')}"

    async def ask(self, request: ProbeRequest) -> RawResponse | ProbeUnknown:
        config = parse_config(DynamodbItemProbeConfig, request.config)
        names = {f"#f{number}": name for number, name in enumerate(config.fields)}
        asked: dict[str, object] = {
            "TableName": config.table,
            "Key": {name: encode_value(cast("Value", value)) for name, value in config.key.items()},
            "ConsistentRead": True,
        }
        if names:
            asked |= {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}
        answer = await self._aws.call("dynamodb", "GetItem", asked)
        item = cast("Mapping[str, Attribute] | None", answer.get("Item"))
        if item is None:
            return RawResponse(value={"exists": False})
        return RawResponse(value={"exists": True, **to_json_map(decode_row(item))})


def _time(value: object) -> str | None:
    return format_utc(value.astimezone(UTC)) if isinstance(value, datetime) else None
