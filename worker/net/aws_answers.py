"""Checks that an answer is one of the service, and whole, before any of it is used.

A proxy in between may answer in the service's place, and a body may be damaged on its way. Both are as if there was no
answer: a row that was not read must not pass for a row that does not exist.
"""

from collections.abc import Mapping
from typing import Any, Final, cast
from zlib import crc32

from botocore.parsers import ResponseParserError

# What the library's parser raises on a body of another shape than the service's.
UNREADABLE: Final = (AttributeError, LookupError, TypeError, ValueError, RecursionError)
CHECKSUM: Final = "x-amz-crc32"  # DynamoDB sends it with every answer
# The member that Interlock reads, by operation. The service always sends those of the first table.
REQUIRED: Final[Mapping[str, tuple[str, type]]] = {
    "BatchGetItem": ("Responses", dict),
    "DescribeStream": ("StreamDescription", dict),
    "DescribeStreamSummary": ("StreamDescriptionSummary", dict),
    "DescribeTable": ("Table", dict),
    "GetRecords": ("Records", list),
    "GetShardIterator": ("ShardIterator", str),
    "ListShards": ("Shards", list),
    "ListStreams": ("Streams", list),
    "PutEvents": ("Entries", list),
    "Query": ("Items", list),
    "SendMessage": ("MessageId", str),
}
OPTIONAL: Final[Mapping[str, tuple[str, type]]] = {
    "ChangeMessageVisibilityBatch": ("Failed", list),
    "DeleteMessageBatch": ("Failed", list),
    "GetItem": ("Item", dict),
    "ReceiveMessage": ("Messages", list),
}
# A good answer to these may be empty: no such row, or written. So an object of anybody else must not pass for one.
MAY_BE_EMPTY: Final = frozenset(
    {
        "ChangeMessageVisibilityBatch",
        "DeleteItem",
        "DeleteMessageBatch",
        "GetItem",
        "PutItem",
        "ReceiveMessage",
        "TransactWriteItems",
        "UpdateItem",
    }
)
REQUEST_ID: Final = "x-amzn-requestid"  # AWS sends it with every answer, and so does every emulator


def check_body(headers: Mapping[str, str], body: bytes) -> None:
    """Raise `ResponseParserError` if the body is not the one whose checksum the service sent."""
    expected = headers.get(CHECKSUM)
    if expected is not None and expected != str(crc32(body)):
        raise ResponseParserError(
            f"the answer was damaged on its way: its checksum is {crc32(body)}, not {expected[:40]}"
        )


def check_members(operation: str, answer: object, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return a successful answer. Raises `ResponseParserError` if it is not one of this operation."""
    if type(answer) is not dict:
        raise ResponseParserError(f"the answer is not what was asked for: {type(answer).__name__}, not an object")
    found = cast("dict[str, Any]", answer)
    name, kind = REQUIRED.get(operation) or OPTIONAL.get(operation) or ("", object)
    if name and type(found.get(name)) is not kind and (operation in REQUIRED or name in found):
        raise ResponseParserError(f"the answer is not what was asked for: it has no {name}, or one of another type")
    # Not by the members that the service has today: it may add some.
    if operation in MAY_BE_EMPTY and REQUEST_ID not in headers:
        raise ResponseParserError(f"the answer has no {REQUEST_ID}, so AWS has not sent it")
    return found


def check_error(parsed: dict[str, Any]) -> dict[str, Any]:
    """Return an error answer. Raises `ResponseParserError` if its code is no text."""
    code = parsed.get("Error", {}).get("Code", "")
    if not isinstance(code, str):
        raise ResponseParserError(f"the error cannot be read: its code is {type(code).__name__}, not text")
    return parsed
