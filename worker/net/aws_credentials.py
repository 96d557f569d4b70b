"""Credentials for AWS, renewed in the background while requests go on with those that are still valid.

The library renews them on a request's own path. From ten minutes before they expire, a credential endpoint that fails
would fail every request, and one that is slow would delay every heartbeat, although the credentials still work.
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

WAIT_MAX_S: Final = 5.0  # of one request, for credentials: less than a call to the store may take
RENEWAL_MAX_S: Final = 30.0  # a provider may be a program that never ends
AGAIN_VALID_S: Final = 15.0  # between two renewals, while there are credentials to go on with
AGAIN_EXPIRED_S: Final = 1.0
REASON_MAX: Final = 500

# What a request fails with that found no valid credentials. None of them was sent, and each may succeed later.
CREDENTIAL_ERRORS: Final = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)
# The same, as services say it: the credentials have expired, are not known yet or any more, or were not accepted.
CREDENTIAL_CODES: Final = frozenset(
    {
        "ExpiredToken", "ExpiredTokenException", "RequestExpired", "UnrecognizedClientException",
        "InvalidClientTokenId", "InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignature",
        "IncompleteSignatureException", "MissingAuthenticationToken", "MissingAuthenticationTokenException",
    }
)  # fmt: skip
# Whatever a provider stumbles over: an answer without keys is a `KeyError`, one that has expired a `RuntimeError`.
_PROVIDER_ERRORS: Final = (
    BotoCoreError, ClientError, aiohttp.ClientError, OSError, LookupError, ValueError, TypeError, AttributeError,
    RuntimeError,
)  # fmt: skip

_log = logger()


def are_missing(error: Exception) -> bool:
    """Say whether a request found no provider of credentials, or one that has only some of them."""
    return isinstance(error, NoCredentialsError | PartialCredentialsError)


class Found(Protocol):
    """What the library's providers find. Those that expire also have `refresh_needed(seconds)`."""

    async def get_frozen_credentials(self) -> ReadOnlyCredentials: ...


Find: TypeAlias = Callable[[], Awaitable[Found | None]]


class BackgroundCredentials:
    """Credentials of one event loop, as the library's clients use them.

    A request raises one of `CREDENTIAL_ERRORS` if there are no valid credentials and none come in time. What is missing
    at first is looked for again: a client that was opened too early is not without credentials for ever. `lenders` are
    those of the process's other loops: what they have is used until there are own ones.
    """

    method: Final = "interlock"  # the library asks each of its own for their origin

    def __init__(self, find: Find, lenders: "Callable[[], Iterable[BackgroundCredentials]]" = tuple) -> None:
        self._find, self._lenders = find, lenders
        self._found: Found | None = None
        self._current: ReadOnlyCredentials | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._renewed_at_s = float("-inf")  # or tried in vain, by the loop's clock
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
        """What there is and has not expired. May be asked for from any thread."""
        current = self._current
        return None if current is None or self._expires_within(0) else current

    def _lent(self) -> ReadOnlyCredentials | None:
        return next((found for lender in self._lenders() if (found := lender.valid) is not None), None)

    def _expires_within(self, seconds: float | None) -> bool:
        """None: within the time in which the library begins to renew them. Those without an end never expire."""
        refresh_needed = cast("Callable[[float | None], bool] | None", getattr(self._found, "refresh_needed", None))
        return refresh_needed is not None and refresh_needed(seconds)

    # --- renewing -----------------------------------------------------------------------------------------------------

    def _renew_if_due(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = AGAIN_VALID_S if self.valid else AGAIN_EXPIRED_S
        is_due = self.valid is None or self._expires_within(None)
        if is_due and self._renewal is None and loop.time() >= self._renewed_at_s + pause_s:
            # It belongs to no request: the end of the one that began it must not end it, nor that one's facts appear in
            # its log lines. It has a limit of its own, and is cancelled when its loop ends.
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
        """Log once that the credentials have expired, and once that there are new ones."""
        has_expired = self._current is not None and self.valid is None
        if has_expired and not self._is_expiry_told:
            _log.error("credentials.expired", reason=str(self._failure))
        elif self.valid and self._is_expiry_told:
            _log.info("credentials.renewed")
        self._is_expiry_told = has_expired


def _not_retrieved(reason: str) -> CredentialRetrievalError:
    return CredentialRetrievalError(provider="the credential chain", error_msg=reason[:REASON_MAX])
