"""What a call to AWS that brought no result means: the one place where errors are told apart.

| What came back | Meaning for a start |
| --- | --- |
| nothing was sent: no connection, no credentials, a parameter that is none | refused |
| throttled; too many runs at once | refused, TRANSIENT |
| credentials that have expired or are not accepted | refused, TRANSIENT: the next request is signed anew |
| any other 4xx; a function that cannot be set up | refused, PERMANENT |
| 408, 5xx, an internal error under any status, no answer, half an answer | unknown: the job may exist |
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

# Everything a call may raise; whatever else comes out of it is a mistake of ours and must be seen.
CALL_ERRORS: Final = (ClientError, BotoCoreError, ResponseParserError, aiohttp.ClientError, OSError, TimeoutError)
# What the library stumbles over in an answer that is not of the shape it should have.
ANSWER_ERRORS: Final = (AttributeError, KeyError, TypeError, ValueError, RecursionError)

# Not carried out, and worth another try: too much at once, or credentials that are renewed by themselves.
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
# Not carried out, and the same tomorrow, although their status is that of a failed service: Lambda could not set up the
# function.
NOT_SET_UP: Final = frozenset(
    {
        "InvalidSubnetIDException", "InvalidSecurityGroupIDException", "InvalidZipFileException",
        "InvalidRuntimeException", "KMSAccessDeniedException", "KMSDisabledException", "KMSInvalidStateException",
        "KMSNotFoundException", "EC2AccessDeniedException",
    }
)  # fmt: skip
# The job may exist, although some services give these with a status that says otherwise.
UNDECIDED: Final = frozenset(
    {
        "InternalFailure", "InternalError", "InternalServerError", "InternalServerException",
        "InternalServiceError", "InternalServiceException", "ServiceException", "ServiceUnavailable",
        "ServiceUnavailableException", "OperationTimeoutException", "RequestTimeout", "RequestTimeoutException",
        "EFSIOException",
    }
)  # fmt: skip


class AwsTrouble(RetryLater):
    """A call that brought no result. Without a `category` it may have been carried out all the same.

    `code` is the service's own name of the error, empty if it did not answer.
    """

    def __init__(self, message: str, *, category: FailureCategory | None, code: str = "") -> None:
        super().__init__(tidy(message))
        self.category, self.code = category, code


class AwsSilence(AwsTrouble, TargetDown):
    """The service did not answer, failed, or turns calls away: the next call to it will fare no better."""


def trouble(error: Exception, what: str, *, has_left: bool) -> AwsTrouble:
    """Say what an error of the call `what` means; `has_left`: bytes of the request were sent."""
    if isinstance(error, ClientError):
        return _answered(cast("Mapping[str, Any]", error.response), what)
    reason = _reason(error)
    if has_left:
        return AwsSilence(f"{what}: {reason}; the request may have arrived", category=None)
    category = _unsent_category(error)
    kind = AwsTrouble if category is FailureCategory.PERMANENT else AwsSilence
    return kind(f"{what}: {reason}; nothing was sent", category=category)


def start_answer(problem: AwsTrouble | Rejected, secrets: Iterable[str] = ()) -> Refused | Unknown:
    """What a start comes to that ended in a problem; its message does not repeat the `secrets`."""
    said = tidy(str(problem), secrets)
    category = problem.category if isinstance(problem, AwsTrouble) else FailureCategory.PERMANENT
    return Unknown(said) if category is None else Refused(category, said)


def declined(code: str, message: str, what: str, *, status: int = 400) -> AwsTrouble:
    """What an answer means that names an error."""
    said = f"{what}: {code or status}: {message or 'no message'}"
    category = _category(code, status)
    kind = AwsSilence if category is None or code in THROTTLED or status == 429 else AwsTrouble
    return kind(said, category=category, code=code)


def _answered(response: Mapping[str, Any], what: str) -> AwsTrouble:
    error: Mapping[str, Any] = response.get("Error") or {}
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    return declined(str(error.get("Code") or ""), str(error.get("Message") or ""), what, status=status)


def _reason(error: Exception) -> str:
    """What went wrong, in the words of whoever saw it: the library calls every failed connection the same."""
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
        return FailureCategory.PERMANENT  # the same tomorrow
    return FailureCategory.TIMEOUT if isinstance(error, TimeoutError) else FailureCategory.TRANSIENT
