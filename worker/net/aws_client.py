"""Fast clients of DynamoDB and of streams: the one file that uses private parts of aiobotocore.

On every call, the library rebuilds its User-Agent, checks parameters that Interlock builds itself, walks each request
and each answer along a schema, works out the service's address, and signs the request by code that can sign any
request. None of that is needed here. Only this file uses private attributes, and `tests/aws/test_fastclient.py` fails
when the library no longer has them.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

import aiobotocore
from aiobotocore.config import AioConfig
from aiobotocore.endpoint import convert_to_response_dict
from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import get_current_datetime
from botocore.exceptions import BotoCoreError
from botocore.parsers import ResponseParserError

from worker.core.errors import ConfigError, Rejected
from worker.net.aws_answers import UNREADABLE, check_body, check_error, check_members
from worker.net.aws_sessions import session_of_loop
from worker.net.aws_signature import signed_headers
from worker.runtime.json_bytes import from_json, to_json

if TYPE_CHECKING:
    from types_aiobotocore_dynamodb.client import DynamoDBClient

# Of their requests and answers, the schema would convert only bytes, which Interlock converts itself.
HOT: Final = frozenset(
    {"GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "BatchGetItem", "TransactWriteItems"}
)

# Parses the body of an answer, by the operation's name. Raises `ValueError`.
Decode: TypeAlias = Callable[[bytes], dict[str, Any]]
PLAIN: Final[Mapping[str, Decode]] = {}  # every answer is plain JSON
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
HOSTS_KEPT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Holds where DynamoDB is and how long to wait for it; None leaves a value to the AWS environment."""

    region: str | None = None
    endpoint: str | None = None
    connect_s: float = 2.0
    read_s: float = 4.0
    # Each long poll holds a connection, and a call that finds none free waits without an error: keep this above the
    # number of long polls.
    connections_max: int = 64
    # The caller, as the provider's own logs show it: it separates calls for a person from calls of a worker.
    agent: str = "interlock"


PERSON: Final = "person-by-interlock"  # the agent of a read that a person asked for


@asynccontextmanager
async def open_client(settings: ClientSettings) -> AsyncGenerator["DynamoDBClient"]:
    """Open a client that never retries a request by itself. Raises `ConfigError` if it cannot be set up."""
    async with open_service("dynamodb", HOT, settings) as client:
        yield client


@asynccontextmanager
async def open_service(
    service: str, hot: frozenset[str], settings: ClientSettings, decoders: Mapping[str, Decode] = PLAIN
) -> AsyncGenerator[Any]:
    """Open a client of any JSON service that never retries. Raises `ConfigError` if it cannot be set up.

    Hot operations take and return the wire format. Their decoders parse their answers; without a decoder an answer is
    plain JSON.
    """
    async with AsyncExitStack() as resources:
        create: Any = session_of_loop().create_client  # its type stubs require literal service names
        opening = create(service, region_name=settings.region, endpoint_url=settings.endpoint, config=_config(settings))
        try:
            client = await resources.enter_async_context(opening)
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(
                f"no {service} client for region {settings.region}, endpoint {settings.endpoint}: {error}; "
                "set AWS_DEFAULT_REGION, or region and endpoint in the store's URL"
            ) from error
        _speed_up(client, hot, decoders)
        yield client


def _config(settings: ClientSettings) -> AioConfig:
    return AioConfig(
        # Passed as a whole, so that the library does not rebuild it per call.
        user_agent=f"{settings.agent} aiobotocore/{aiobotocore.__version__}",
        parameter_validation=False,
        retries={
            "mode": "standard",
            "total_max_attempts": 1,
        },  # a hidden retry could be mistaken for another writer's request
        connect_timeout=settings.connect_s,
        read_timeout=settings.read_s,
        max_pool_connections=settings.connections_max,
        tcp_keepalive=True,
    )


class _Parser(Protocol):
    async def parse(self, response: Mapping[str, Any], shape: object) -> dict[str, Any]: ...


class _ParserFactory(Protocol):
    def create_parser(self, protocol_name: str) -> _Parser: ...


class HotParser:
    """Parses the successful answers of hot operations; the library parses the rest and every error."""

    def __init__(self, stock: _Parser, hot: frozenset[str], decoders: Mapping[str, Decode]) -> None:
        self._stock, self._hot, self._decoders = stock, hot, decoders

    async def parse(self, response: Mapping[str, Any], shape: object) -> dict[str, Any]:
        operation, is_error = response["context"]["operation_name"], response["status_code"] >= 300
        if is_error or operation not in self._hot:
            return await self._parsed_by_library(response, shape, operation, is_error=is_error)
        check_body(response["headers"], response["body"])
        try:
            decoded = self._decoders.get(operation, from_json)(response["body"])
        except ValueError as error:
            raise ResponseParserError(f"the answer is not what was asked for: {error}") from error
        answer = check_members(operation, decoded, response["headers"])
        # The library's parser puts all headers here; Interlock needs only the store's time.
        answer["ResponseMetadata"] = {"HTTPHeaders": {"date": response["headers"].get("date")}}
        return answer

    async def _parsed_by_library(
        self, response: Mapping[str, Any], shape: object, operation: str, *, is_error: bool
    ) -> dict[str, Any]:
        try:
            check_body(response["headers"], response["body"])
            parsed = await self._stock.parse(response, shape)
        except UNREADABLE as error:
            raise ResponseParserError(f"the answer cannot be read: {type(error).__name__}: {error}") from error
        return check_error(parsed) if is_error else check_members(operation, parsed, response["headers"])


class HotParserFactory:
    """Returns one parser per protocol, where the library would create a new one for each answer."""

    def __init__(self, stock: _ParserFactory, hot: frozenset[str], decoders: Mapping[str, Decode]) -> None:
        self._stock, self._hot, self._decoders = stock, hot, decoders
        self._parsers: dict[str, HotParser] = {}

    def create_parser(self, protocol_name: str) -> HotParser:
        if protocol_name not in self._parsers:
            stock = self._stock.create_parser(protocol_name)
            self._parsers[protocol_name] = HotParser(stock, self._hot, self._decoders)
        return self._parsers[protocol_name]


class _Operation(Protocol):
    @property
    def name(self) -> str: ...


class _Serializer(Protocol):
    def serialize_to_request(self, parameters: Mapping[str, Any], operation_model: _Operation) -> dict[str, Any]: ...


class HotSerializer:
    """Writes the bodies of hot requests; the library writes their headers and all other requests."""

    def __init__(self, stock: _Serializer, hot: frozenset[str]) -> None:
        self._stock, self._hot = stock, hot
        self._frames: dict[str, dict[str, Any]] = {}

    def serialize_to_request(self, parameters: Mapping[str, Any], operation_model: _Operation) -> dict[str, Any]:
        name = operation_model.name
        if name not in self._hot:
            return self._stock.serialize_to_request(parameters, operation_model)
        frame = self._frames.get(name)
        if frame is None:
            frame = self._frames[name] = self._stock.serialize_to_request({}, operation_model)
        try:
            body = to_json(parameters)
        except ValueError as error:
            raise Rejected(
                f"the request {name} cannot be written as JSON: {error}; fix the program that wrote its text"
            ) from error
        return {**frame, "headers": dict(frame["headers"]), "body": body}  # the library adds to the headers


class HotRequests:
    """Signs and sends hot requests; the library does so for all others, and reads every error."""

    def __init__(self, client: Any, hot: frozenset[str]) -> None:  # noqa: ANN401 - its type lacks the private attributes
        self._endpoint, self._signer, self._hot = client._endpoint, client._request_signer, hot  # noqa: SLF001
        self._stock: Callable[[Any, dict[str, Any]], Awaitable[Any]] = self._endpoint.make_request

    async def make_request(self, operation: Any, request: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
        host = _plain_host(request["url"])
        signing: Mapping[str, str] = request["context"].get("signing") or {}
        is_plain = (request["context"].get("auth_type") or self._signer.signature_version) == "v4"
        credentials = self._signer._credentials  # noqa: SLF001
        if operation.name not in self._hot or host is None or not is_plain or credentials is None:
            return await self._stock(operation, request)
        headers = signed_headers(
            request["headers"],
            request["body"],
            host=host,
            region=signing.get("region") or self._signer.region_name,
            service=signing.get("signing_name") or self._signer.signing_name,
            credentials=await credentials.get_frozen_credentials(),
            now=get_current_datetime(),
        )
        prepared: Any = AWSPreparedRequest  # its stubs want the library's own type of headers
        sent = prepared("POST", request["url"], headers, request["body"], stream_output=False)
        answer = await self._endpoint.http_session.send(sent)
        return answer, await self._parsed(answer, operation)

    async def _parsed(self, answer: Any, operation: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
        response = await convert_to_response_dict(answer, operation)
        factory: _ParserFactory = self._endpoint._response_parser_factory  # noqa: SLF001
        parser = factory.create_parser(operation.service_model.resolved_protocol)
        parsed = await parser.parse(response, operation.output_shape)
        if answer.status_code >= 300:
            try:
                await self._endpoint._add_modeled_error_fields(response, parsed, operation, parser)  # noqa: SLF001
            except UNREADABLE as error:
                raise ResponseParserError(f"the error cannot be read: {type(error).__name__}: {error}") from error
        return parsed


@lru_cache(maxsize=HOSTS_KEPT)
def _plain_host(url: str) -> str | None:
    """Return the host to sign; None if the URL has more than a host.

    The library then signs the request.
    """
    parts = urlsplit(url)
    if parts.path not in {"", "/"} or parts.query or parts.hostname is None or ":" in parts.hostname or parts.username:
        return None
    is_default = parts.port in {None, DEFAULT_PORTS.get(parts.scheme)}
    return parts.hostname if is_default else f"{parts.hostname}:{parts.port}"


class HotEndpoints:
    """Works out the address of a hot operation once.

    It depends on the region, the account and a stream's name.
    """

    def __init__(self, resolver: Any, hot: frozenset[str]) -> None:  # noqa: ANN401 - as above
        self._stock: Callable[..., Awaitable[Any]] = resolver.construct_endpoint
        self._hot = hot
        self._found: dict[tuple[str, object], Any] = {}

    async def construct_endpoint(
        self,
        operation_model: _Operation,
        call_args: Mapping[str, Any],
        request_context: dict[str, Any],
    ) -> Any:  # noqa: ANN401 - as above
        if operation_model.name not in self._hot:
            return await self._stock(
                operation_model=operation_model, call_args=call_args, request_context=request_context
            )
        key = operation_model.name, call_args.get("StreamARN")
        if key not in self._found:
            self._found[key] = await self._stock(
                operation_model=operation_model, call_args=call_args, request_context=request_context
            )
        return self._found[key]


def _speed_up(client: Any, hot: frozenset[str], decoders: Mapping[str, Decode]) -> None:  # noqa: ANN401 - its type lacks the private attributes
    # With one attempt the retry rules can only answer no, after they inspected every answer.
    service = client.meta.service_model.service_id.hyphenize()
    client.meta.events.unregister(f"needs-retry.{service}", unique_id=f"retry-config-{service}")
    # The library has no public way to replace its parser and its serializer.
    endpoint = client._endpoint  # noqa: SLF001
    stock = endpoint._response_parser_factory  # noqa: SLF001
    endpoint._response_parser_factory = HotParserFactory(stock, hot, decoders)  # noqa: SLF001
    client._serializer = HotSerializer(client._serializer, hot)  # noqa: SLF001
    endpoint.make_request = HotRequests(client, hot).make_request
    if client._ruleset_resolver is not None:  # noqa: SLF001
        client._ruleset_resolver.construct_endpoint = HotEndpoints(client._ruleset_resolver, hot).construct_endpoint  # noqa: SLF001
