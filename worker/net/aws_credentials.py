"""AWS credentials that are renewed in the background while requests use those that are still valid.

The library renews credentials inside a request. From ten minutes before they expire, a credential endpoint that fails
would fail every request, and a slow one would delay every heartbeat, although the credentials still work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from typing import Final, Protocol, TypeAlias, cast

import aiohttp
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)

from worker.runtime.logs import logger

WAIT_MAX_S: Final = 5.0  # for one request to wait for credentials: less than a store call may take
RENEWAL_MAX_S: Final = 30.0  # a provider may be a program that never ends
AGAIN_VALID_S: Final = 15.0  # between two renewals, while the credentials are still valid
AGAIN_EXPIRED_S: Final = 1.0
REASON_MAX: Final = 500

# What a request raises without valid credentials. The request was not sent, and a later one may succeed.
CREDENTIAL_ERRORS: Final = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)
# The same as error codes of services: the credentials have expired, are unknown, or were not accepted. A skewed
# clock is among them: a request is signed with its time, and a clock is corrected while the worker runs.
CREDENTIAL_CODES: Final = frozenset(
    {
        "ExpiredToken", "ExpiredTokenException", "RequestExpired", "UnrecognizedClientException",
        "InvalidClientTokenId", "InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignature",
        "IncompleteSignatureException", "MissingAuthenticationToken", "MissingAuthenticationTokenException",
        "RequestTimeTooSkewed", "RequestInTheFuture",
    }
)  # fmt: skip
# What a provider may raise: an answer without keys is a `KeyError`, an expired one a `RuntimeError`.
_PROVIDER_ERRORS: Final = (
    BotoCoreError, ClientError, aiohttp.ClientError, OSError, LookupError, ValueError, TypeError, AttributeError,
    RuntimeError,
)  # fmt: skip

_log = logger()


def are_missing(error: Exception) -> bool:
    """Return whether a request found no credential provider, or one with incomplete credentials."""
    return isinstance(error, NoCredentialsError | PartialCredentialsError)


class Found(Protocol):
    """Credentials as the library's providers return them.

    Credentials that expire also have `refresh_needed(seconds)`.
    """

    async def get_frozen_credentials(self) -> ReadOnlyCredentials: ...


Find: TypeAlias = Callable[[], Awaitable[Found | None]]


class BackgroundCredentials:
    """Provides the credentials of one event loop to the library's clients.

    A request raises one of `CREDENTIAL_ERRORS` if there are no valid credentials and none arrive in time. Missing
    credentials are searched for again, so a client that was opened too early can still get them. `lenders` are the
    credentials of the process's other loops; they are used until this loop has its own.
    """

    method: Final = "interlock"  # the library reads the origin of its credentials here

    def __init__(self, find: Find, lenders: "Callable[[], Iterable[BackgroundCredentials]]" = tuple) -> None:
        self._find, self._lenders = find, lenders
        self._found: Found | None = None
        self._current: ReadOnlyCredentials | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._renewed_at_s = float("-inf")  # last renewal, failed ones included, by the loop's clock
        self._failure: BotoCoreError | None = None
        self._is_expiry_told = False

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        self._renew_if_due()
        found = self.valid or self._lent()
        if found is None and self._renewal is not None:
            await asyncio.wait([self._renewal], timeout=WAIT_MAX_S)
            found = self.valid
        if found is None:
            raise self._failure or _not_retrieved(f"no answer within {WAIT_MAX_S:g} s")
        return found

    async def get_account_id(self) -> str | None:
        return (await self.get_frozen_credentials()).account_id

    def get_deferred_property(self, name: str) -> Callable[[], object]:
        return lambda: getattr(self._current, name, None)

    @property
    def valid(self) -> ReadOnlyCredentials | None:
        """Return the current credentials, None if they have expired. Any thread may call it."""
        current = self._current
        return None if current is None or self._expires_within(0) else current

    def _lent(self) -> ReadOnlyCredentials | None:
        return next((found for lender in self._lenders() if (found := lender.valid) is not None), None)

    def _expires_within(self, seconds: float | None) -> bool:
        """Return whether the credentials expire within `seconds`; those without an expiry never do.

        None means the time before expiry at which the library begins to renew them.
        """
        refresh_needed = cast("Callable[[float | None], bool] | None", getattr(self._found, "refresh_needed", None))
        return refresh_needed is not None and refresh_needed(seconds)

    # --- renewal ------------------------------------------------------------------------------------------------------

    def _renew_if_due(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = AGAIN_VALID_S if self.valid else AGAIN_EXPIRED_S
        is_due = self.valid is None or self._expires_within(None)
        if is_due and self._renewal is None and loop.time() >= self._renewed_at_s + pause_s:
            # The task belongs to no request: the end of the request that started it must not end it, and that request's
            # facts must not appear in its log lines. It has its own time limit and is cancelled when its loop ends.
            self._renewal = loop.create_task(self._renew(), name="credentials", context=Context())

    async def _renew(self) -> None:
        try:
            self._current = await self._retrieved()
            self._failure = None
        except CREDENTIAL_ERRORS as error:
            self._failure = error
        except TimeoutError:
            self._failure = _not_retrieved(f"no answer within {RENEWAL_MAX_S:g} s")
        except _PROVIDER_ERRORS as error:
            self._failure = _not_retrieved(f"{type(error).__name__}: {error}")
        finally:
            self._renewal, self._renewed_at_s = None, asyncio.get_running_loop().time()
        self._tell()

    async def _retrieved(self) -> ReadOnlyCredentials:
        async with asyncio.timeout(RENEWAL_MAX_S):
            self._found = self._found or await self._find()
            if self._found is None:
                raise NoCredentialsError
            return await self._found.get_frozen_credentials()

    def _tell(self) -> None:
        """Log once that the credentials have expired, and once that they are renewed."""
        has_expired = self._current is not None and self.valid is None
        if has_expired and not self._is_expiry_told:
            _log.error("credentials.expired", reason=str(self._failure))
        elif self.valid and self._is_expiry_told:
            _log.info("credentials.renewed")
        self._is_expiry_told = has_expired


def _not_retrieved(reason: str) -> CredentialRetrievalError:
    return CredentialRetrievalError(provider="the credential chain", error_msg=reason[:REASON_MAX])
