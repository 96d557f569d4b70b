"""Implement the chat port on Slack. No other module uses its SDK."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from consumers.alerts.chat import Block, ChatBusy, ChatDown, ChatMessage, ChatRefused, ChatTrouble, Posted
from worker.core.errors import Rejected, RetryLater

API: Final = "https://slack.com/api/"
CALL_S: Final = 10  # far less than the lifetime of a thread's claim
RETRY_AFTER_S: Final = 30.0  # if Slack does not say

TokenSource: TypeAlias = Callable[[], Awaitable[str]]

# Keeps Slack from turning addresses and names in a text into links.
_AS_IT_IS: Final[Mapping[str, Any]] = {"parse": "none", "link_names": False}

# Temporary errors.
_PASSING: Final = frozenset(
    {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_access_not_granted"}
)
_TOO_MUCH: Final = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
# A person has to fix the token or the app. Nothing can be posted until then, and no alert is lost.
_LOCKED_OUT: Final = frozenset(
    {
        "invalid_auth",
        "not_authed",
        "account_inactive",
        "token_revoked",
        "token_expired",
        "missing_scope",
        "no_permission",
        "access_denied",
        "org_login_required",
        "ekm_access_denied",
        "team_added_to_org",
        "two_factor_setup_required",
    }
)


class SlackChat:
    """Posts with a bot token. It reads the token on first use and again after Slack rejects it."""

    def __init__(self, token: TokenSource, session: aiohttp.ClientSession, *, api: str = API) -> None:
        self._token, self._session, self._api = token, session, api
        self._client: Any = None  # an AsyncWebClient, whose types are incomplete

    async def post(self, channel: str, saying: ChatMessage, *, thread: str = "", is_broadcast: bool = False) -> Posted:
        answer = await self._say(
            "chat.postMessage",
            channel=channel,
            text=saying.text,
            blocks=_blocks(saying.blocks),
            unfurl_links=False,
            unfurl_media=False,
            **_AS_IT_IS,
            **({"thread_ts": thread, "reply_broadcast": is_broadcast} if thread else {}),
        )
        return Posted(channel=str(answer.get("channel") or channel), timestamp=str(answer["ts"]))

    async def update(self, message: Posted, saying: ChatMessage) -> None:
        await self._say(
            "chat.update",
            channel=message.channel,
            ts=message.timestamp,
            text=saying.text,
            blocks=_blocks(saying.blocks),
            **_AS_IT_IS,
        )

    async def reach(self) -> None:
        """Prove that Slack accepts our token, without posting anything. Raises `RetryLater` if it does not."""
        try:
            await self._call("auth.test", "auth.test", {})
        except ChatRefused as error:
            raise RetryLater(str(error)) from error

    async def _say(self, method: str, **arguments: Any) -> Any:  # noqa: ANN401 - as the SDK types them
        return await self._call(method, f"{method} to {arguments['channel']}", arguments)

    async def _call(self, method: str, what: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as above
        client = self._client or await self._connect()
        try:
            return await client.api_call(method, json=dict(arguments))
        except SlackApiError as error:
            raise self._answered(error, what) from error
        # The SDK raises errors of its own for a response that is not JSON, such as a proxy's error page.
        except (SlackClientError, aiohttp.ClientError, OSError, TimeoutError, AttributeError, ValueError) as error:
            raise ChatDown(f"Slack {what}: {type(error).__name__}: {error}") from error

    async def _connect(self) -> Any:  # noqa: ANN401 - as above
        try:
            token = await self._token()
        except (Rejected, RetryLater) as error:
            raise ChatDown(f"the Slack token cannot be read: {error}") from error
        self._client = AsyncWebClient(
            token=token,
            base_url=self._api,
            timeout=CALL_S,
            session=self._session,
            # No handler: the default one sends a message again when the connection drops, so it may appear twice.
            retry_handlers=[],
        )
        return self._client

    def _answered(self, error: SlackApiError, what: str) -> ChatTrouble | ChatRefused:
        status, code, headers = _parts(error)
        said = f"Slack {what}: {code or 'no answer'} (HTTP {status})"
        if status == 429 or code in _TOO_MUCH:
            return ChatBusy(f"{said}; it asks to wait", _retry_after_s(headers))
        if code in _LOCKED_OUT:
            self._client = None  # the token may have changed: the next call reads it again
            return ChatDown(f"{said}; check the token (INTERLOCK_SLACK_TOKEN) and the app's permissions")
        if code in _PASSING or not code or status >= 500:
            return ChatDown(f"{said}; it is tried again")
        return ChatRefused(f"{said}; check the channels in the alerts file, and that the app was invited there", code)


def session_for_slack() -> aiohttp.ClientSession:
    """Open one session for all posts: it reuses connections, and no call exceeds its limit."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_S), trust_env=True)


def _blocks(blocks: Sequence[Block]) -> list[Any]:
    return [dict(block) for block in blocks]


def _parts(error: SlackApiError) -> tuple[int, str, Any]:
    """Return the status, Slack's error code and the headers.

    The SDK passes the raw response on if it is not JSON.
    """
    response: Any = error.response
    status = int(getattr(response, "status_code", 0) or getattr(response, "status", 0))
    data = getattr(response, "data", None)
    code = str(data.get("error", "")) if isinstance(data, dict) else ""  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - SDK's own
    return status, code, getattr(response, "headers", {})


def _retry_after_s(headers: Any) -> float:  # noqa: ANN401 - as the SDK types them
    said = str(headers.get("Retry-After", ""))
    return float(said) if said.isdecimal() else RETRY_AFTER_S
