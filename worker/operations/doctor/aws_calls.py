"""Calls any AWS service for an operator, and interprets the answers as permissions."""

import asyncio
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast

from botocore.exceptions import ClientError

from worker.core.errors import RetryLater
from worker.core.time.skew import skew
from worker.net.aws_client import ClientSettings, open_service
from worker.net.aws_credentials import CREDENTIAL_CODES, CREDENTIAL_ERRORS
from worker.runtime.clock import Clock
from worker.store.dynamodb.errors import CALL_ERRORS, NOT_ALLOWED

CALL_S: Final = 15.0
_WHOLE_SECONDS: Final = timedelta(seconds=1)  # the resolution of an HTTP date
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")
_DENIED: Final = re.compile(r"AccessDenied|NotAuthorized|UnauthorizedOperation|KmsAccessDenied")


class AwsRefusal(Exception):
    """Signals that the service answered and refused. `code` is the service's own error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code

    @property
    def is_for_lack_of_rights(self) -> bool:
        return self.code in NOT_ALLOWED or _DENIED.search(self.code) is not None


class Unauthenticated(RetryLater):
    """Signals that there are no usable credentials: no call to any service can succeed."""


@dataclass(frozen=True, slots=True)
class AwsReply:
    """AwsReply holds a response; `ahead_s` is our clock's lead over the service's, None if unknown."""

    body: Mapping[str, Any]
    ahead_s: float | None


class AwsCalls:
    """Opens a client per service at its first call. The given stack closes the clients."""

    def __init__(self, stack: AsyncExitStack, settings: ClientSettings, clock: Clock) -> None:
        self._stack, self._settings, self._clock = stack, settings, clock
        self._clients: dict[str, Any] = {}

    async def call(self, service: str, operation: str, parameters: Mapping[str, Any]) -> AwsReply:
        """Send one request. Raises `AwsRefusal`, `RetryLater` without an answer, and `Unauthenticated`."""
        client = await self._client(service)
        method = getattr(client, _CAPITAL.sub("_", operation).lower())
        sent = self._clock.now()
        try:
            async with asyncio.timeout(CALL_S):
                body: Mapping[str, Any] = await method(**parameters)
        except ClientError as error:
            said = cast("Mapping[str, Any]", error.response).get("Error", {})
            refusal = AwsRefusal(str(said.get("Code", "?")), str(said.get("Message", "")))
            if refusal.code in CREDENTIAL_CODES:
                raise Unauthenticated(str(refusal)) from error
            raise refusal from error
        except CREDENTIAL_ERRORS as error:
            raise Unauthenticated(str(error)) from error
        except CALL_ERRORS as error:
            raise RetryLater(f"{service} {operation}: {type(error).__name__}: {error}") from error
        return AwsReply(body, self._ahead_s(body, sent))

    async def _client(self, service: str) -> Any:  # noqa: ANN401 - the library creates its methods at run time
        if service not in self._clients:
            opening = open_service(service, frozenset(), self._settings)
            self._clients[service] = await self._stack.enter_async_context(opening)
        return self._clients[service]

    def _ahead_s(self, body: Mapping[str, Any], sent: datetime) -> float | None:
        said = body.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if not said:
            return None
        service_time = parsedate_to_datetime(str(said)).astimezone(UTC)
        return skew(service_time, sent=sent, received=self._clock.now(), resolution=_WHOLE_SECONDS).total_seconds()
