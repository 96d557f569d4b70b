"""DynamoDB Streams and Kinesis in memory, with what emulators lack.

Both stand where the AWS client stands (`consumers.streams.aws.calls.Calls`), so the shipped adapters run on them. They
have rollover, splits and merges, listings with gaps, an open parent beside its child, trimming, iterators that expire,
limits that throttle, and in Kinesis repeats and records out of order.
"""

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import ClassVar, Final, Literal

from consumers.streams.aws.calls import Answer, BadArgument, NotFound
from consumers.streams.aws.kinesis_records import decode_answer
from tests.support.fakes.shards import Entry, FakeShard, FakeShards, Wire, halves, page_of
from worker.core.errors import Rejected
from worker.store.dynamodb.values import encode_key, encode_row
from worker.store.table import ChangeKind, Key, Row

ARN: Final = "arn:aws:dynamodb:eu-west-1:000000000000:table/test-control/stream/2026-03-03T12:00:00.000"
# Sequence numbers grow by a digit soon after the start: whoever compares them as text is found out.
DYNAMODB_FIRST: Final = 10**21 - 20
KINESIS_FIRST: Final = 10**55 - 20

Precision = Literal["MILLISECOND", "MICROSECOND"]


@dataclass(slots=True, kw_only=True)
class FakeDynamoStreams(FakeShards):
    """The stream of one table. A new one has one open shard; `disable` ends it."""

    service: ClassVar[str] = "dynamodbstreams"
    arn: str = ARN
    table: str = "test-control"
    view: str = "NEW_AND_OLD_IMAGES"
    status: str = "ENABLED"
    sequence: int = DYNAMODB_FIRST

    def __post_init__(self) -> None:
        self.add_shard()

    def shard_id(self, number: int) -> str:
        return f"shardId-{number:020d}-{number:08x}"

    # --- what tests do ------------------------------------------------------------------------------------------------

    def write(self, key: Key, image: Row | None, kind: ChangeKind = ChangeKind.MODIFY) -> Entry:
        """A change of a row, or its removal if there is no image."""
        shard = self.shard_for(_hash(key.pk))
        change: Wire = {
            "ApproximateCreationDateTime": float(
                int(self.clock.now().timestamp())
            ),  # rounded down, as the service does
            "Keys": encode_key(key),
            "SequenceNumber": str(self.next_sequence()),
            "SizeBytes": 100,
            "StreamViewType": self.view,
        }
        if image is not None and "NEW" in self.view:
            change["NewImage"] = encode_row({"PK": key.pk, "SK": key.sk, **image})
        wire: Wire = {
            "eventID": f"{self.sequence:032x}",
            "eventName": (ChangeKind.REMOVE if image is None else kind).value,
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": "eu-west-1",
            "dynamodb": change,
        }
        entry = Entry(self.sequence, self.clock.now(), wire, len(json.dumps(wire, default=_base64)))
        shard.entries.append(entry)
        return entry

    def roll(self, shard_id: str, *, is_seen: bool = True) -> FakeShard:
        """End a shard; its child goes on. Not `is_seen`: listings still show the parent as open."""
        return self.add_shard(shard_id, hash_range=self.close(shard_id, is_seen=is_seen).hash_range)

    def split(self, shard_id: str) -> tuple[FakeShard, FakeShard]:
        low, high = halves(self.close(shard_id).hash_range)
        return self.add_shard(shard_id, hash_range=low), self.add_shard(shard_id, hash_range=high)

    def disable(self) -> None:
        self.status = "DISABLED"
        for shard in self.open_shards():
            self.close(shard.id)

    # --- the calls ----------------------------------------------------------------------------------------------------

    async def call(self, operation: str, **parameters: object) -> Answer:
        self.begin(operation, parameters)
        match operation:
            case "ListStreams":
                return {"Streams": [{"StreamArn": self.arn, "TableName": self.table, "StreamLabel": _label(self.arn)}]}
            case "DescribeStream":
                return self._describe(parameters)
            case "GetShardIterator":
                self._must_be_ours(parameters)
                return {"ShardIterator": self._iterator(parameters)}
            case "GetRecords":
                return self._records(parameters)
            case _:
                raise Rejected(f"DynamoDB Streams has no {operation}")

    def named_sequence(self, parameters: Mapping[str, object]) -> int:
        return int(str(parameters["SequenceNumber"]))

    def _must_be_ours(self, parameters: Mapping[str, object]) -> None:
        if parameters["StreamArn"] != self.arn:
            raise NotFound(f"there is no stream {parameters['StreamArn']}")

    def _describe(self, parameters: Mapping[str, object]) -> Answer:
        self._must_be_ours(parameters)
        self.limit("DescribeStream", per_second=10)
        shown = self.listed()
        if isinstance(wanted := parameters.get("ShardFilter"), Mapping):
            assert wanted["Type"] == "CHILD_SHARDS", "the service knows no other filter"
            shown = [shard for shard in shown if wanted["ShardId"] in shard.parents]
        start = parameters.get("ExclusiveStartShardId")
        page, more = page_of(shown, None if start is None else str(start), self.page_max)
        description: Wire = {
            "StreamArn": self.arn,
            "StreamStatus": self.status,
            "StreamViewType": self.view,
            "TableName": self.table,
            "Shards": [_dynamodb_shard(shard) for shard in page],
        }
        return {"StreamDescription": description | ({"LastEvaluatedShardId": more} if more else {})}

    def _iterator(self, parameters: Mapping[str, object]) -> str:
        name = self.iterator(parameters)
        shard, after = self.place_of(name)
        self.refuse_trimmed(self.shards[shard], after)
        return name

    def _records(self, parameters: Mapping[str, object]) -> Answer:
        shard, after = self.place_of(parameters["ShardIterator"])
        self.refuse_trimmed(self.shard(shard), after)
        _, found, following = self.read(parameters)
        return {"Records": [entry.wire for entry in found]} | ({"NextShardIterator": following} if following else {})


@dataclass(slots=True, kw_only=True)
class FakeKinesis(FakeShards):
    """A Kinesis stream. A new one has one open shard over all hash keys."""

    service: ClassVar[str] = "kinesis"
    name: str = "test-changes"
    sequence: int = KINESIS_FIRST
    records_max: int = 10_000
    bytes_max: int = 10_000_000
    page_max: int = 1_000
    reads_per_second: int = 5  # of one shard

    def __post_init__(self) -> None:
        self.add_shard()

    # --- what tests do ------------------------------------------------------------------------------------------------

    def put(self, data: bytes, partition_key: str = "key", explicit_hash_key: int | None = None) -> Entry:
        """A record, in the shard that its hash key belongs to."""
        hash_key = _hash(partition_key) if explicit_hash_key is None else explicit_hash_key
        shard = self.shard_for(hash_key)
        wire: Wire = {
            "SequenceNumber": str(self.next_sequence()),
            "ApproximateArrivalTimestamp": self.clock.now().timestamp(),
            "Data": b64encode(data).decode(),
            "PartitionKey": partition_key,
        }
        entry = Entry(self.sequence, self.clock.now(), wire, len(data))
        shard.entries.append(entry)
        return entry

    def deliver(self, changes: Sequence[tuple[str, bytes]], random: Random) -> None:
        """Change records of DynamoDB by partition key: in any order, and one in four of them twice."""
        arriving = [*changes, *random.sample(list(changes), len(changes) // 4)]
        random.shuffle(arriving)
        for partition_key, change in arriving:
            self.put(change, partition_key)

    def split(self, shard_id: str) -> tuple[FakeShard, FakeShard]:
        low, high = halves(self.close(shard_id).hash_range)
        return self.add_shard(shard_id, hash_range=low), self.add_shard(shard_id, hash_range=high)

    def merge(self, shard_id: str, adjacent: str) -> FakeShard:
        ranges = sorted([self.close(shard_id).hash_range, self.close(adjacent).hash_range])
        assert ranges[0][1] + 1 == ranges[1][0], "only neighbours can be merged"
        return self.add_shard(shard_id, adjacent, hash_range=(ranges[0][0], ranges[1][1]))

    # --- the calls ----------------------------------------------------------------------------------------------------

    async def call(self, operation: str, **parameters: object) -> Answer:
        self.begin(operation, parameters)
        match operation:
            case "DescribeStreamSummary":
                self._must_be_ours(parameters)
                hours = int(self.keeps.total_seconds() // 3600)
                summary: Wire = {"StreamName": self.name, "StreamStatus": "ACTIVE", "RetentionPeriodHours": hours}
                return {"StreamDescriptionSummary": summary}
            case "ListShards":
                return self._list(parameters)
            case "GetShardIterator":
                self._must_be_ours(parameters)
                self.limit(f"GetShardIterator {parameters['ShardId']}", per_second=5)
                return {"ShardIterator": self._iterator(parameters)}
            case "GetRecords":
                return self._records(parameters)
            case _:
                raise Rejected(f"Kinesis has no {operation}")

    def named_sequence(self, parameters: Mapping[str, object]) -> int:
        return int(str(parameters["StartingSequenceNumber"]))

    def _must_be_ours(self, parameters: Mapping[str, object]) -> None:
        if parameters["StreamName"] != self.name:
            raise NotFound(f"there is no stream {parameters['StreamName']}")

    def _list(self, parameters: Mapping[str, object]) -> Answer:
        if (token := parameters.get("NextToken")) is None:
            self._must_be_ours(parameters)
        else:
            assert "StreamName" not in parameters, "the service refuses a token beside a name"
        self.limit("ListShards", per_second=1000)
        page, more = page_of(self.listed(), None if token is None else str(token), self.page_max)
        return {"Shards": [_kinesis_shard(shard) for shard in page]} | ({"NextToken": more} if more else {})

    def _iterator(self, parameters: Mapping[str, object]) -> str:
        if int(str(parameters.get("StartingSequenceNumber", 0))) > self.sequence:
            raise BadArgument("InvalidArgumentException: the number did not come from this stream")
        if parameters["ShardIteratorType"] != "AT_TIMESTAMP":
            # What is trimmed is passed over without a word, as the service does.
            return self.iterator(parameters)
        since = float(str(parameters["Timestamp"]))
        shard = self.shard(parameters["ShardId"])
        before = [entry.sequence for entry in shard.entries if entry.at.timestamp() < since]
        return self.give(shard, before[-1] if before else shard.trimmed_to)

    def _records(self, parameters: Mapping[str, object]) -> Answer:
        shard_id, _ = self.place_of(parameters["ShardIterator"])
        self.limit(f"GetRecords {shard_id}", per_second=self.reads_per_second)
        shard, found, following = self.read(parameters)
        answer: Wire = {"Records": [entry.wire for entry in found], "MillisBehindLatest": 0}
        if following is None:
            children = [_child(child) for child in self.children_of(shard.id)]
            return self._as_read(answer | ({"ChildShards": children} if children else {}))
        ahead = self.next_after(shard, self.place_of(following)[1])
        behind = timedelta(0) if ahead is None else self.clock.now() - ahead.at
        answer |= {"NextShardIterator": following, "MillisBehindLatest": behind // timedelta(milliseconds=1)}
        return self._as_read(answer)

    def _as_read(self, answer: Wire) -> Answer:
        """The one answer that the client does not leave as the wire has it."""
        return decode_answer(json.dumps(answer).encode())


def change_record(
    key: Key,
    image: Row | None,
    at: datetime,
    *,
    kind: ChangeKind = ChangeKind.MODIFY,
    table: str = "test-control",
    precision: Precision | None = "MICROSECOND",
) -> bytes:
    """What DynamoDB delivers to Kinesis about one change. Without a precision: as it was before there was a choice."""
    micros = round(at.timestamp() * 1e6)
    change: Wire = {
        "ApproximateCreationDateTime": micros if precision == "MICROSECOND" else micros // 1000,
        "Keys": encode_key(key),
        "SizeBytes": 100,
    }
    if precision is not None:
        change["ApproximateCreationDateTimePrecision"] = precision
    if image is not None:
        change["NewImage"] = encode_row({"PK": key.pk, "SK": key.sk, **image})
    record = {
        "awsRegion": "eu-west-1",
        "eventID": hashlib.sha256(f"{key} {micros}".encode()).hexdigest()[:32],
        "eventName": (ChangeKind.REMOVE if image is None else kind).value,
        "userIdentity": None,
        "recordFormat": "application/json",
        "tableName": table,
        "dynamodb": change,
        "eventSource": "aws:dynamodb",
    }
    return json.dumps(record, default=_base64).encode()


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode()).digest())


def _label(arn: str) -> str:
    return arn.rpartition("/")[2]


def _range(shard: FakeShard) -> Wire:
    end = {} if shard.ends_at is None or not shard.is_seen_closed else {"EndingSequenceNumber": str(shard.ends_at)}
    return {"StartingSequenceNumber": str(shard.starts_at), **end}


def _dynamodb_shard(shard: FakeShard) -> Wire:
    parent = {"ParentShardId": shard.parents[0]} if shard.parents else {}
    return {"ShardId": shard.id, "SequenceNumberRange": _range(shard), **parent}


def _kinesis_shard(shard: FakeShard) -> Wire:
    names = zip(("ParentShardId", "AdjacentParentShardId"), shard.parents, strict=False)
    return {"ShardId": shard.id, "SequenceNumberRange": _range(shard), "HashKeyRange": _hashes(shard), **dict(names)}


def _child(shard: FakeShard) -> Wire:
    return {"ShardId": shard.id, "ParentShards": list(shard.parents), "HashKeyRange": _hashes(shard)}


def _hashes(shard: FakeShard) -> Wire:
    low, high = shard.hash_range
    return {"StartingHashKey": str(low), "EndingHashKey": str(high)}
