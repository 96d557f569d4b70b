"""Fast clients of DynamoDB and of streams: the one file that uses private parts of aiobotocore.

On every call, the library rebuilds its User-Agent, checks parameters that Interlock builds itself, and walks each
request and each answer along a schema. None of that is needed here. Only `_speed_up` uses private attributes, and
`tests/aws/test_fastclient.py` fails when the library no longer has them.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import aiobotocore
from aiobotocore.config import AioConfig
from botocore.exceptions import BotoCoreError
from botocore.parsers import ResponseParserError

from worker.core.errors import ConfigError, Rejected
from worker.net.aws_sessions import session_of_loop
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
        operation = response["context"]["operation_name"]
        if response["status_code"] >= 300 or operation not in self._hot:
            return await self._stock.parse(response, shape)
        try:
            answer = self._decoders.get(operation, from_json)(response["body"])
        except ValueError as error:
            raise ResponseParserError(f"the answer is not what was asked for: {error}") from error
        # The library's parser puts all headers here; Interlock needs only the store's time.
        answer["ResponseMetadata"] = {"HTTPHeaders": {"date": response["headers"].get("date")}}
        return answer


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


def _speed_up(client: Any, hot: frozenset[str], decoders: Mapping[str, Decode]) -> None:  # noqa: ANN401 - its type lacks the private attributes
    # With one attempt the retry rules can only answer no, after they inspected every answer.
    service = client.meta.service_model.service_id.hyphenize()
    client.meta.events.unregister(f"needs-retry.{service}", unique_id=f"retry-config-{service}")
    # The library has no public way to replace its parser and its serializer.
    endpoint = client._endpoint  # noqa: SLF001
    stock = endpoint._response_parser_factory  # noqa: SLF001
    endpoint._response_parser_factory = HotParserFactory(stock, hot, decoders)  # noqa: SLF001
    client._serializer = HotSerializer(client._serializer, hot)  # noqa: SLF001
