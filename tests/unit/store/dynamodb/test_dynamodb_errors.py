"""Every error of the AWS libraries becomes one of ours, and says what to do."""

from typing import Any, cast

import aiohttp
import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError

from worker.core.errors import ConfigError, Rejected, RetryLater, WorkerError
from worker.store.dynamodb.calls import credentials_required
from worker.store.dynamodb.errors import (
    ConditionFailed,
    InDoubt,
    MissingTable,
    NoCredentials,
    NotApplied,
    SkewedClock,
    TableBusy,
    translate,
)
from worker.store.table import TooLarge

URL = "http://127.0.0.1:1"


def answered(code: str, message: str = "made by the test", status: int = 400, **more: object) -> WorkerError:
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **more,
    }
    return translate(ClientError(response, "PutItem"), "PutItem")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("RequestTimeTooSkewed", "The difference is too large."),
        ("InvalidSignatureException", "Signature expired: 20260303T110000Z is now earlier than 20260303T115500Z"),
        ("InvalidSignatureException", "Signature not yet current: 20260303T130000Z is still later than"),
    ],
)
def test_at_the_start_a_wrong_clock_is_not_called_wrong_credentials(code: str, message: str) -> None:
    trouble = RetryLater("given up")
    trouble.__cause__ = answered(code, message)

    with pytest.raises(ConfigError, match="set the clock of this machine") as refused, credentials_required():
        raise trouble

    assert "credentials" not in str(refused.value)


def cancelled(*reasons: dict[str, Any]) -> WorkerError:
    return answered("TransactionCanceledException", CancellationReasons=list(reasons))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ProvisionedThroughputExceededException", NotApplied),
        ("ThrottlingException", NotApplied),
        ("RequestLimitExceeded", NotApplied),
        ("TransactionConflictException", NotApplied),
        ("TransactionInProgressException", InDoubt),
        ("InternalServerError", InDoubt),
        ("AccessDeniedException", ConfigError),
        ("UnrecognizedClientException", NoCredentials),
        ("ExpiredTokenException", NoCredentials),
        ("InvalidSignatureException", NoCredentials),
        ("RequestTimeTooSkewed", SkewedClock),
        ("RequestInTheFuture", SkewedClock),
        ("ResourceNotFoundException", MissingTable),
        ("ResourceInUseException", TableBusy),
        ("ValidationException", Rejected),
        ("ItemCollectionSizeLimitExceededException", Rejected),
        ("SomethingNew", NotApplied),
        ("403", NotApplied),
    ],
)
def test_an_error_code_says_what_the_caller_should_do(code: str, kind: type[WorkerError]) -> None:
    error = answered(code)

    assert isinstance(error, kind)
    assert f"DynamoDB PutItem: {code}" in str(error)


def test_an_unknown_code_of_a_server_error_leaves_the_outcome_open() -> None:
    assert isinstance(answered("SomethingNew", status=503), InDoubt)


def test_a_row_that_grew_too_large_is_too_large() -> None:
    error = answered("ValidationException", "Item size to update has exceeded the maximum allowed size")

    assert isinstance(error, TooLarge)


def test_a_failed_condition_carries_the_row_it_met() -> None:
    error = answered("ConditionalCheckFailedException", Item={"version": {"N": "7"}})

    assert isinstance(error, ConditionFailed)
    assert error.row == {"version": 7}


def test_a_failed_condition_on_no_row_carries_none() -> None:
    error = answered("ConditionalCheckFailedException")

    assert isinstance(error, ConditionFailed)
    assert error.row is None


def test_a_cancelled_transaction_names_the_write_that_was_refused() -> None:
    error = cancelled({"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": {"version": {"N": "7"}}})

    assert isinstance(error, ConditionFailed)
    assert (error.position, error.row) == (1, {"version": 7})


@pytest.mark.parametrize("reason", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"])
def test_a_transaction_cancelled_by_others_is_tried_again(reason: str) -> None:
    assert isinstance(cancelled({"Code": "None"}, {"Code": reason}), NotApplied)


def test_a_refused_condition_counts_more_than_a_conflict() -> None:
    error = cancelled({"Code": "TransactionConflict"}, {"Code": "ConditionalCheckFailed"})

    assert isinstance(error, ConditionFailed)


def test_a_transaction_that_can_never_be_valid_is_rejected() -> None:
    error = cancelled({"Code": "ValidationError", "Message": "Item size has exceeded the maximum allowed size"})

    assert isinstance(error, TooLarge)


@pytest.mark.parametrize(
    "error",
    [
        ConnectTimeoutError(endpoint_url=URL),
        EndpointConnectionError(
            endpoint_url=URL,
            error=aiohttp.ClientConnectorError(connection_key=cast("Any", None), os_error=OSError()),
        ),
        CredentialRetrievalError(provider="container-role", error_msg="no answer"),
        PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
        NoCredentialsError(),
    ],
)
def test_a_request_that_never_left_is_known_not_to_be_applied(error: Exception) -> None:
    assert isinstance(translate(error, "PutItem"), NotApplied)


@pytest.mark.parametrize(
    "error",
    [
        # The library says "could not connect" for a connection that was reset after the request was sent.
        EndpointConnectionError(endpoint_url=URL, error=aiohttp.ClientOSError("reset by peer")),
        ConnectionClosedError(endpoint_url=URL),
        ReadTimeoutError(endpoint_url=URL),
        ResponseParserError("not JSON"),
        aiohttp.ClientPayloadError("cut"),
        ConnectionResetError("reset"),
        TimeoutError(),
    ],
)
def test_a_request_without_an_answer_leaves_the_outcome_open(error: Exception) -> None:
    translated = translate(error, "PutItem")

    assert isinstance(translated, InDoubt)
    assert isinstance(translated, RetryLater)


def test_a_client_that_cannot_work_is_for_a_person_to_mend() -> None:
    error = translate(NoRegionError(), "PutItem")

    assert isinstance(error, ConfigError)
    assert "region" in str(error)
