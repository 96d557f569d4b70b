"""Classifies failed calls to AWS. No other module interprets AWS errors.

| Response | Meaning for a start |
| --- | --- |
| nothing was sent: no connection, no credentials, an invalid parameter | refused |
| throttled; too many concurrent runs | refused, TRANSIENT |
| expired or rejected credentials | refused, TRANSIENT: the next request is signed again |
| any other 4xx; a function that cannot be set up | refused, PERMANENT |
| 408, 5xx, an internal error with any status, no response, a partial response | unknown: the job may exist |
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
from botocore.parsers import ResponseParserError

from worker.core.errors import Rejected, RetryLater
from worker.core.run.state import FailureCategory
from worker.jobs.messages import tidy
from worker.jobs.runner import Refused, TargetDown, Unknown
from worker.net.aws_credentials import CREDENTIAL_CODES

# Every error that a call may raise. Any other exception is a bug and must not be hidden.
CALL_ERRORS: Final = (ClientError, BotoCoreError, ResponseParserError, aiohttp.ClientError, OSError, TimeoutError)
# What the library raises on a malformed response.
ANSWER_ERRORS: Final = (AttributeError, KeyError, TypeError, ValueError, RecursionError)

# Not executed and worth a retry: too many requests, or credentials that renew themselves.
THROTTLED: Final = frozenset(
    {
        "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException",
        "TooManyRequestsException", "RequestLimitExceeded", "SlowDown",
    }
)  # fmt: skip
TURNED_AWAY: Final = THROTTLED | frozenset(
    {
        "LimitExceededException", "KmsThrottlingException", "EC2ThrottledException",
        "ConcurrentRunsExceededException", "ResourceNumberLimitExceededException", "ServiceQuotaExceededException",
        "ExecutionLimitExceeded", "ENILimitReachedException", "ENINotReadyException", "ResourceNotReadyException",
        "SubnetIPAddressLimitReachedException", "SnapStartNotReadyException", "SnapStartTimeoutException",
        "EC2UnexpectedException", "EFSMountConnectivityException", "EFSMountTimeoutException",
        "S3FilesMountConnectivityException", "S3FilesMountTimeoutException",
        *CREDENTIAL_CODES,
    }
)  # fmt: skip
# Not executed and permanent, although the status is a server error: Lambda could not set up the function.
NOT_SET_UP: Final = frozenset(
    {
        "InvalidSubnetIDException", "InvalidSecurityGroupIDException", "InvalidZipFileException",
        "InvalidRuntimeException", "KMSAccessDeniedException", "KMSDisabledException", "KMSInvalidStateException",
        "KMSNotFoundException", "EC2AccessDeniedException",
    }
)  # fmt: skip
# The job may exist, although some services send these with a status that suggests otherwise.
UNDECIDED: Final = frozenset(
    {
        "InternalFailure", "InternalError", "InternalServerError", "InternalServerException",
        "InternalServiceError", "InternalServiceException", "ServiceException", "ServiceUnavailable",
        "ServiceUnavailableException", "OperationTimeoutException", "RequestTimeout", "RequestTimeoutException",
        "EFSIOException",
    }
)  # fmt: skip


class AwsTrouble(RetryLater):
    """Signals that a call gave no result. If `category` is None, the call may have been executed.

    `code` is the service's own error code. It is empty if the service did not respond.
    """

    def __init__(
        self, message: str, *, category: FailureCategory | None, code: str = "", is_throttled: bool = False
    ) -> None:
        super().__init__(tidy(message))
        self.category, self.code, self.is_throttled = category, code, is_throttled


class AwsSilence(AwsTrouble, TargetDown):
    """Signals no response, a server failure or throttling: other calls to the service would fail too."""


def trouble(error: Exception, what: str, *, has_left: bool) -> AwsTrouble:
    """Classify the error of the call `what`; `has_left` means that bytes of the request were sent."""
    if isinstance(error, ClientError):
        return _answered(cast("Mapping[str, Any]", error.response), what)
    reason = _reason(error)
    if has_left:
        return AwsSilence(f"{what}: {reason}; the request may have arrived", category=None)
    category = _unsent_category(error)
    kind = AwsTrouble if category is FailureCategory.PERMANENT else AwsSilence
    return kind(f"{what}: {reason}; nothing was sent", category=category)


def start_answer(problem: AwsTrouble | Rejected, secrets: Iterable[str] = ()) -> Refused | Unknown:
    """Return the answer for a start that failed. Its message does not contain any of the `secrets`."""
    said = tidy(str(problem), secrets)
    category = problem.category if isinstance(problem, AwsTrouble) else FailureCategory.PERMANENT
    if category is None:
        return Unknown(said)
    return Refused(category, said, is_throttled=isinstance(problem, AwsTrouble) and problem.is_throttled)


def declined(code: str, message: str, what: str, *, status: int = 400) -> AwsTrouble:
    """Return the error for a response that contains an error code."""
    said = f"{what}: {code or status}: {message or 'no message'}"
    category = _category(code, status)
    is_throttled = code in THROTTLED or status == 429
    kind = AwsSilence if category is None or is_throttled else AwsTrouble
    return kind(said, category=category, code=code, is_throttled=is_throttled)


def _answered(response: Mapping[str, Any], what: str) -> AwsTrouble:
    error: Mapping[str, Any] = response.get("Error") or {}
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    return declined(str(error.get("Code") or ""), str(error.get("Message") or ""), what, status=status)


def _reason(error: Exception) -> str:
    """Return the underlying cause: the library gives every failed connection the same message."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    cause = error.kwargs.get("error") if isinstance(error, BotoCoreError) else None
    return str(cause or error) or type(cause or error).__name__


def _category(code: str, status: int) -> FailureCategory | None:
    if code in TURNED_AWAY or status == 429:
        return FailureCategory.TRANSIENT
    if code in NOT_SET_UP:
        return FailureCategory.PERMANENT
    if code in UNDECIDED or status == 408 or not 400 <= status < 500:
        return None
    return FailureCategory.PERMANENT


def _unsent_category(error: Exception) -> FailureCategory:
    if isinstance(error, ParamValidationError):
        return FailureCategory.PERMANENT  # a retry would fail in the same way
    return FailureCategory.TIMEOUT if isinstance(error, TimeoutError) else FailureCategory.TRANSIENT
