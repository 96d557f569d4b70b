"""Full answers of GetRecords, as DynamoDB Streams and Kinesis would give them: a thousand changes of sensor rows."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

RECORDS: Final = 1_000
TABLE: Final = "bench-control"
STREAM: Final = "bench-changes"
SHARD: Final = "shardId-000000000000"
DYNAMODB_SHARD: Final = "shardId-00000000000000000001-00000001"
ARN: Final = f"arn:aws:dynamodb:eu-west-1:000000000000:table/{TABLE}/stream/2026-03-03T12:00:00.000"
MADE_AT: Final = 1_772_539_200
_FIRST: Final = 10**27


def dynamodb_answers() -> Mapping[str, bytes]:
    """About a megabyte, which is as much as the service gives."""
    records = [
        {
            "eventID": f"{number:032x}",
            "eventName": "MODIFY",
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": "eu-west-1",
            "dynamodb": {
                "ApproximateCreationDateTime": MADE_AT,
                **_images(number),
                "SequenceNumber": str(_FIRST + number),
                "SizeBytes": 412,
                "StreamViewType": "NEW_AND_OLD_IMAGES",
            },
        }
        for number in range(RECORDS)
    ]
    return {
        "GetShardIterator": _json({"ShardIterator": "iterator"}),
        "GetRecords": _json({"Records": records, "NextShardIterator": "iterator"}),
    }


def kinesis_answers() -> Mapping[str, bytes]:
    """The same changes, delivered to Kinesis, and what clients ask before they read."""
    records = [
        {
            "SequenceNumber": str(10**55 + number),
            "ApproximateArrivalTimestamp": MADE_AT + number / 1000,
            "Data": b64encode(data).decode(),
            "PartitionKey": f"{number:032x}",
            "EncryptionType": "NONE",
        }
        for number, data in enumerate(delivered_changes())
    ]
    shard = {
        "ShardId": SHARD,
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)},
        "SequenceNumberRange": {"StartingSequenceNumber": "1"},
    }
    described = {
        "StreamName": STREAM,
        "StreamARN": f"arn:aws:kinesis:eu-west-1:000000000000:stream/{STREAM}",
        "StreamStatus": "ACTIVE",
        "RetentionPeriodHours": 24 * 365,
        "StreamCreationTimestamp": MADE_AT,
        "OpenShardCount": 1,
    }
    return {
        "DescribeStream": _json({"StreamDescription": {**described, "Shards": [shard], "HasMoreShards": False}}),
        "DescribeStreamSummary": _json({"StreamDescriptionSummary": described}),
        "ListShards": _json({"Shards": [shard]}),
        "GetShardIterator": _json({"ShardIterator": "iterator"}),
        "GetRecords": _json({"Records": records, "NextShardIterator": "iterator", "MillisBehindLatest": 1}),
    }


def delivered_changes() -> Sequence[bytes]:
    return [_json(_delivered(number)) for number in range(RECORDS)]


def _delivered(number: int) -> Mapping[str, Any]:
    return {
        "awsRegion": "eu-west-1",
        "eventID": f"{number:032x}",
        "eventName": "MODIFY",
        "userIdentity": None,
        "recordFormat": "application/json",
        "tableName": TABLE,
        "dynamodb": {
            "ApproximateCreationDateTime": MADE_AT * 1_000_000 + number,
            "ApproximateCreationDateTimePrecision": "MICROSECOND",
            **_images(number),
            "SizeBytes": 412,
        },
        "eventSource": "aws:dynamodb",
    }


def _images(number: int) -> Mapping[str, Any]:
    key = {"PK": {"S": f"PIPELINE#pipeline-{number % 50}"}, "SK": {"S": f"SENSOR#orders#2026-03-{number % 28 + 1:02d}"}}
    row = {
        **key,
        "status": {"S": "ready"},
        "rows": {"N": str(1_000_000 + number)},
        "updatedAt": {"S": "2026-03-03T12:00:00Z"},
        "data": {"M": {"source": {"S": "warehouse"}, "checks": {"L": [{"S": "rows"}, {"S": "nulls"}]}}},
    }
    return {"Keys": key, "NewImage": row, "OldImage": {**row, "status": {"S": "loading"}}}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
