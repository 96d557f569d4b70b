"""List a bucket. Only this module uses the S3 client, and no client error leaves it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, cast

from botocore.exceptions import BotoCoreError, ClientError

from consumers.inbox.seeding import Bucket, ListedObject
from worker.core.errors import ConfigError, RetryLater, WorkerError
from worker.net.aws_client import ClientSettings, open_service
from worker.store.dynamodb.errors import CALL_ERRORS, PASSING

PAGE_MAX: Final = 1_000
CALL_S: Final = 30.0
_BUSY: Final = frozenset({"SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling"})


class _Lists(Protocol):
    """_Lists is the part of the S3 client that is used here.

    The library creates its methods at run time, and its types are not installed.
    """

    async def list_objects_v2(self, **parameters: object) -> Mapping[str, Any]: ...


@asynccontextmanager
async def open_bucket(bucket: str, settings: ClientSettings) -> AsyncGenerator[Bucket]:
    async with open_service("s3", frozenset(), settings) as client:
        yield S3Bucket(cast("_Lists", client), bucket)


class S3Bucket:
    """Implements `Bucket` on S3.

    It continues after a key instead of S3's own token, so that another process can continue.
    """

    def __init__(self, client: _Lists, bucket: str) -> None:
        self._client, self._bucket = client, bucket

    async def page(self, prefix: str, after: str) -> Sequence[ListedObject]:
        where = {"Bucket": self._bucket, "Prefix": prefix, "MaxKeys": PAGE_MAX}
        start = {"StartAfter": after} if after else {}
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._client.list_objects_v2(**where, **start)
        except CALL_ERRORS as error:
            raise self._translated(error) from error
        return [ListedObject(str(each["Key"]), str(each["ETag"]).strip('"')) for each in answer.get("Contents", [])]

    def _translated(self, error: Exception) -> WorkerError:
        what = f"listing the bucket {self._bucket}: {type(error).__name__}: {error}"
        if isinstance(error, ClientError):
            response = cast("Mapping[str, Any]", error.response)
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status < 500 and response["Error"].get("Code") not in _BUSY:
                return ConfigError(f"{what}; check its name, and that you may list it (s3:ListBucket)")
        elif isinstance(error, BotoCoreError) and not isinstance(error, PASSING):
            return ConfigError(f"{what}; check the region, credentials and endpoint")
        return RetryLater(f"{what}; try again")
