"""Translates errors: no error of the Redis library leaves this backend."""

from collections.abc import Mapping
from typing import Final

from redis.exceptions import AuthenticationError, AuthorizationError, ResponseError
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import TimeoutError as NoAnswer

from worker.core.errors import ConfigError, RetryLater, WorkerError

# What a connection may raise; any other exception is a bug in Interlock and must be seen.
CONNECTION_ERRORS: Final = (NoConnection, NoAnswer, OSError, TimeoutError, EOFError)

# What a server answers when it does not take a request now, and what to do; nothing of the request was applied.
REFUSED_NOW: Final[Mapping[str, str]] = {
    "LOADING": "the server is loading its data; it is tried again",
    "READONLY": "this server is a replica now; the new primary is looked for",
    "MOVED": "another node has the data now; it is looked for",
    "ASK": "the data is moving to another node; it is tried again",
    "TRYAGAIN": "the data is moving to another node; it is tried again",
    "CLUSTERDOWN": "the cluster is not complete; it is tried again",
    "MASTERDOWN": "the server has no primary; it is tried again",
    "OOM": "the server has reached maxmemory: give it more, or remove what other programs keep there",
    "MISCONF": "the server cannot save its data and takes no writes: see its log and its disk",
    "NOREPLICAS": "the server has too few replicas (min-replicas-to-write); start them",
    "BUSY": "another program's script blocks the server; it is tried again",
    "UNBLOCKED": "the server has just become a replica; the new primary is looked for",
    "max number of clients": "the server has no connection left (maxclients); raise it, or find who uses them",
}
NOT_ALLOWED: Final = ("NOAUTH", "WRONGPASS", "NOPERM", "AUTH ", "invalid username-password")
NOT_TRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"
# After these answers the next request needs another server.
ELSEWHERE: Final = ("READONLY", "MOVED", "ASK", "CLUSTERDOWN", "MASTERDOWN", "UNBLOCKED")


class NotTaken(RetryLater):
    """NotTaken: the request was certainly not applied; sending it again is safe."""


class ReplyLost(RetryLater):
    """ReplyLost: there was no answer; the request may have been applied, or may still be applied."""


class UserRefused(ConfigError):
    """UserRefused: the server does not let this user do this; nothing was applied."""


class StoreGone(ConfigError):
    """StoreGone: the server answers, and the installation is not on it, or not in this version."""


def lost(error: BaseException, where: str) -> ReplyLost:
    return ReplyLost(f"{where}: {_said(error)}; the answer was lost, so the outcome is not known")


def unreachable(error: BaseException, where: str, hint: str = "") -> WorkerError:
    """Return the error of a failed connection; `hint` is what may be wrong with the settings."""
    said = _said(error)
    if isinstance(error, AuthenticationError | AuthorizationError) or _is_refusal_of_user(said):
        return ConfigError(f"{where} does not accept this user: {said}; correct user and password of the store's URL")
    if NOT_TRUSTED in said:
        return ConfigError(
            f"{where} has a certificate that is not valid here: {said}; name the authority that signed it with "
            "ssl_ca_certs in the store's URL, and the server by a host name of the certificate"
        )
    return NotTaken(
        f"{where} cannot be reached: {said}; check that it runs, and its address; workers keep trying{hint}"
    )


def answered(error: ResponseError, where: str) -> WorkerError:
    """Return the error that states what the caller of a refused request must do."""
    said = _said(error)
    if _is_refusal_of_user(said):
        return UserRefused(f"{where} refuses this user a command: {said}; grant it, as the how-to page on Redis shows")
    for code, remedy in REFUSED_NOW.items():
        if code in said:
            return NotTaken(f"{where}: {said}; {remedy}")
    return ConfigError(
        f"{where}: {said}; another program may have changed the keys of this store: see `interlock store check`"
    )


def answered_later(error: ResponseError, where: str) -> WorkerError:
    """Return the error of a refused request that the server has accepted before: it will be right again."""
    what = answered(error, where)
    if isinstance(what, UserRefused):
        return NotTaken(f"{what}; it was allowed before, so it is tried again")
    # A script that failed halfway keeps what it wrote before.
    return ReplyLost(f"{what}; it was accepted before, so it is tried again") if isinstance(what, ConfigError) else what


def needs_another_server(error: BaseException) -> bool:
    return isinstance(error, ResponseError) and any(code in _said(error) for code in ELSEWHERE)


def _is_refusal_of_user(said: str) -> bool:
    return any(code in said for code in NOT_ALLOWED)


def _said(error: BaseException) -> str:
    """Return the server's words with their code, which the library keeps apart."""
    code = getattr(error, "status_code", None)
    text = str(error)
    if isinstance(code, str) and not text.startswith(code):
        return f"{code} {text}"
    return text or type(error).__name__
