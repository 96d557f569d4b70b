"""A DynamoDB client that spends its time on the request: the one file that reaches into aiobotocore.

The library rebuilds its User-Agent, checks parameters we build ourselves and walks each answer against a schema, on
every call. None of that is needed here. What is not public is touched in `_parse_hot_answers_ourselves` alone, and
`tests/aws/test_fastclient.py` fails when the library no longer has it.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import aiobotocore
import orjson
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from botocore.exceptions import BotoCoreError
from botocore.parsers import ResponseParserError

from worker.core.errors import ConfigError

if TYPE_CHECKING:
    from types_aiobotocore_dynamodb.client import DynamoDBClient

# Their answers hold nothing the schema would convert, but bytes, which the decoder of values converts itself.
HOT: Final = frozenset(
    {"GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "BatchGetItem", "TransactWriteItems"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Where DynamoDB is and how long to wait for it; None leaves a place to the AWS environment."""

    region: str | None = None
    endpoint: str | None = None
    connect_s: float = 2.0
    read_s: float = 4.0
    # Each long poll holds a connection, and a call that finds none free waits in silence: keep this above their number.
    connections_max: int = 64


@asynccontextmanager
async def open_client(settings: ClientSettings) -> AsyncGenerator["DynamoDBClient"]:
    """Open a client that never repeats a request by itself. Raises `ConfigError` if it cannot be set up."""
    async with AsyncExitStack() as resources:
        opening = _session().create_client(
            "dynamodb", region_name=settings.region, endpoint_url=settings.endpoint, config=_config(settings)
        )
        try:
            client = await resources.enter_async_context(opening)
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(
                f"no DynamoDB client for region {settings.region}, endpoint {settings.endpoint}: {error}; "
                "set AWS_DEFAULT_REGION, or region and endpoint in the store's URL"
            ) from error
        _parse_hot_answers_ourselves(client)
        yield client


@cache
def _session() -> AioSession:
    # It keeps the description of the service, which takes longer to read than a client takes to make.
    return AioSession()


def _config(settings: ClientSettings) -> AioConfig:
    return AioConfig(
        user_agent=f"interlock aiobotocore/{aiobotocore.__version__}",  # given whole, so it is not rebuilt per call
        parameter_validation=False,
        retries={
            "mode": "standard",
            "total_max_attempts": 1,
        },  # a repeat we do not know of could be taken for another's
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
    """Reads the successful answers of hot operations; all others, and every error, go to the library's parser."""

    def __init__(self, stock: _Parser) -> None:
        self._stock = stock

    async def parse(self, response: Mapping[str, Any], shape: object) -> dict[str, Any]:
        if response["status_code"] >= 300 or response["context"]["operation_name"] not in HOT:
            return await self._stock.parse(response, shape)
        try:
            return orjson.loads(response["body"])
        except orjson.JSONDecodeError as error:
            raise ResponseParserError(f"the answer is not JSON: {error}") from error


class HotParserFactory:
    """Stands where the library makes a new parser for each answer, and makes one."""

    def __init__(self, stock: _ParserFactory) -> None:
        self._stock = stock
        self._parsers: dict[str, HotParser] = {}

    def create_parser(self, protocol_name: str) -> HotParser:
        if protocol_name not in self._parsers:
            self._parsers[protocol_name] = HotParser(self._stock.create_parser(protocol_name))
        return self._parsers[protocol_name]


def _parse_hot_answers_ourselves(client: Any) -> None:  # noqa: ANN401 - its type does not have what we touch
    endpoint = client._endpoint  # noqa: SLF001 - the library has no public way to replace its parser
    endpoint._response_parser_factory = HotParserFactory(endpoint._response_parser_factory)  # noqa: SLF001 - as above
