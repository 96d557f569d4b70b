"""Translates errors: no error of the AWS libraries leaves the DynamoDB backend."""

from collections.abc import Mapping
from typing import Any, Final, cast

import aiohttp
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    HTTPClientError,
)
from botocore.exceptions import ConnectionError as NoConnection
from botocore.parsers import ResponseParserError

from worker.core.errors import ConfigError, Rejected, RetryLater, WorkerError
from worker.net.aws_credentials import CREDENTIAL_CODES, CREDENTIAL_ERRORS, are_missing
from worker.store.dynamodb.values import Item, decode_row
from worker.store.table import Row, TooLarge

# Everything a call may raise; any other exception is a bug in Interlock and must be seen.
CALL_ERRORS: Final = (ClientError, BotoCoreError, ResponseParserError, aiohttp.ClientError, OSError, TimeoutError)
# The temporary ones among the library's errors: the source of credentials may be unavailable for a moment.
PASSING: Final = (HTTPClientError, NoConnection, *CREDENTIAL_ERRORS)

THROTTLED: Final = {
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "Throttling",
    "ThrottlingError",
    "ThrottledException",
    "RequestLimitExceeded",
    "LimitExceededException",
    "TransactionConflictException",
    "TransactionConflict",
    "ProvisionedThroughputExceeded",
    "ReplicatedWriteConflictException",
}
# The other attempt may succeed or fail.
UNDECIDED: Final = {"TransactionInProgressException", "InternalServerError", "ServiceUnavailable", "RequestTimeout"}
NOT_ALLOWED: Final = {"AccessDeniedException"}
# A request is signed with its time.
SKEWED: Final = {"RequestTimeTooSkewed", "RequestInTheFuture", "RequestExpired"}
SKEWED_SIGNATURE: Final = ("Signature expired", "Signature not yet current")
# The request itself is wrong. For any other 4xx the cause is unknown; it may be a proxy in between.
IMPOSSIBLE: Final = {
    "ValidationException",
    "SerializationException",
    "ItemCollectionSizeLimitExceededException",
    "IdempotentParameterMismatchException",
    "UnknownOperationException",
    "RequestEntityTooLarge",
}


class NotApplied(RetryLater):
    """NotApplied: the request was certainly not applied; sending it again is safe."""


class NoCredentials(NotApplied):
    """NoCredentials: credentials are missing or not accepted.

    At start-up a person must act; later the call is retried.
    """


class SkewedClock(NoCredentials):
    """SkewedClock: AWS does not accept the time that requests are signed with; credentials may be right."""


class InDoubt(RetryLater):
    """InDoubt: there was no answer; the request may have been applied, or may still be applied."""


class AccessRefused(ConfigError):
    """AccessRefused: the caller is known, and not allowed to do this."""


class MissingTable(ConfigError):
    """MissingTable: a table does not exist, or does not exist yet."""


class TableBusy(Rejected):
    """TableBusy: another process is creating or changing the table at this moment."""


class ConditionFailed(WorkerError):
    """ConditionFailed: the write at `position` was refused; `row` is the row it found."""

    def __init__(self, position: int, row: Row | None) -> None:
        super().__init__(f"the condition of write {position} does not hold")
        self.position, self.row = position, row


def translate(error: Exception, operation: str) -> WorkerError:
    """Return the error that states what the caller of a failed call must do."""
    if isinstance(error, ClientError):
        return _answered(cast("Mapping[str, Any]", error.response), operation)
    what = f"DynamoDB {operation}: {type(error).__name__}: {error}"
    if are_missing(error):
        return NoCredentials(f"{what}; the request never left, it is tried again")
    if _was_never_sent(error):
        return NotApplied(f"{what}; the request never left, it is tried again")
    if isinstance(error, BotoCoreError) and not isinstance(error, PASSING):
        return ConfigError(f"{what}; check the region, credentials and endpoint of the store")
    return InDoubt(f"{what}; the answer was lost, so the outcome is not known")


def _was_never_sent(error: Exception) -> bool:
    # The library reports a reset after sending as "could not connect" too: only its own cause distinguishes them.
    cause = error.kwargs.get("error") if isinstance(error, BotoCoreError) else None
    is_before_sending = isinstance(error, (ConnectTimeoutError, *CREDENTIAL_ERRORS))
    return is_before_sending or isinstance(cause, aiohttp.ClientConnectorError)


def _answered(response: Mapping[str, Any], operation: str) -> WorkerError:
    code, message = str(response["Error"].get("Code")), str(response["Error"].get("Message"))
    what = f"DynamoDB {operation}: {code}: {message}"
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(0, _row(response.get("Item")))
    if code == "TransactionCanceledException":
        return _cancelled(_reasons(response), what)
    if code in THROTTLED:
        return NotApplied(f"{what}; it is tried again")
    if code in UNDECIDED or response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
        return InDoubt(f"{what}; the outcome is not known")
    if code == "ResourceNotFoundException":
        return MissingTable(f"{what}; create the tables with `interlock store init`, or correct their names or region")
    if code == "ResourceInUseException":
        return TableBusy(f"{what}; wait until that is done")
    if code in SKEWED or message.startswith(SKEWED_SIGNATURE):
        return SkewedClock(f"{what}; set the clock of this machine, then it is accepted")
    if code in CREDENTIAL_CODES:
        return NoCredentials(f"{what}; it is tried again with new credentials")
    if code in NOT_ALLOWED:
        return AccessRefused(f"{what}; give the worker valid credentials that are allowed to do this")
    if code in IMPOSSIBLE:
        return _impossible(message, what)
    return NotApplied(f"{what}; it is tried again")


def _reasons(response: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return one reason for each write of a cancelled transaction; none if they cannot be read."""
    found: object = response.get("CancellationReasons")
    reasons = cast("list[object]", found) if isinstance(found, list) else []
    readable = [cast("Mapping[str, Any]", each) for each in reasons if isinstance(each, Mapping)]
    is_whole = len(readable) == len(reasons) and all(isinstance(each.get("Code", ""), str) for each in readable)
    return readable if is_whole else []


def _cancelled(reasons: list[Mapping[str, Any]], what: str) -> WorkerError:
    """Return the error of a cancelled transaction, by its decisive reason; nothing of it was applied."""
    for position, reason in enumerate(reasons):
        if reason.get("Code") == "ConditionalCheckFailed":
            return ConditionFailed(position, _row(reason.get("Item")))
    if not reasons or any(reason.get("Code") in THROTTLED for reason in reasons):
        return NotApplied(f"{what}; it is tried again")
    messages = "; ".join(str(reason["Message"]) for reason in reasons if reason.get("Message"))
    return _impossible(messages, f"{what} {messages}")


def _impossible(message: str, what: str) -> WorkerError:
    if "size" in message.lower() and "exceed" in message.lower():
        return TooLarge(f"{what}; keep large data elsewhere and store where it is")
    return Rejected(f"{what}; the request can never succeed as it is")


def _row(item: Item | None) -> Row | None:
    return decode_row(item) if item else None
