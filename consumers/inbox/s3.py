"""List buckets, read and move objects.

Only this module uses the S3 client, and no client error leaves it.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, cast

from botocore.exceptions import BotoCoreError, ClientError

from consumers.inbox.objects import ObjectGone, Objects, ObjectState
from consumers.inbox.seeding import Bucket, ListedObject
from worker.core.errors import ConfigError, Rejected, RetryLater, WorkerError
from worker.net.aws_client import ClientSettings, open_service
from worker.store.dynamodb.errors import CALL_ERRORS, PASSING

PAGE_MAX: Final = 1_000
CALL_S: Final = 30.0
COPY_S: Final = 300.0  # S3 copies up to 5 GB in one call
_RIGHTS: Final = "the name, and that you may get, put and delete objects there (s3:GetObject, PutObject, DeleteObject)"
_GONE: Final = frozenset({"NoSuchKey", "404", "NotFound", "PreconditionFailed", "412"})
_BUSY: Final = frozenset({"SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling"})


class _Client(Protocol):
    """_Client is the part of the S3 client that is used here.

    The library creates its methods at run time, and its types are not installed.
    """

    async def list_objects_v2(self, **parameters: object) -> Mapping[str, Any]: ...
    async def get_object(self, **parameters: object) -> Mapping[str, Any]: ...
    async def head_object(self, **parameters: object) -> Mapping[str, Any]: ...
    async def copy_object(self, **parameters: object) -> Mapping[str, Any]: ...
    async def delete_object(self, **parameters: object) -> Mapping[str, Any]: ...


@asynccontextmanager
async def open_bucket(bucket: str, settings: ClientSettings) -> AsyncGenerator[Bucket]:
    async with open_service("s3", frozenset(), settings) as client:
        yield S3Bucket(cast("_Client", client), bucket)


class S3Bucket:
    """Implements `Bucket` on S3.

    It continues after a key instead of S3's own token, so that another process can continue.
    """

    def __init__(self, client: _Client, bucket: str) -> None:
        self._client, self._bucket = client, bucket

    async def page(self, prefix: str, after: str) -> Sequence[ListedObject]:
        where = {"Bucket": self._bucket, "Prefix": prefix, "MaxKeys": PAGE_MAX}
        start = {"StartAfter": after} if after else {}
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._client.list_objects_v2(**where, **start)
        except CALL_ERRORS as error:
            what = f"listing the bucket {self._bucket}"
            raise _translated(what, error, "its name, and that you may list it (s3:ListBucket)") from error
        return [ListedObject(str(each["Key"]), str(each["ETag"]).strip('"')) for each in answer.get("Contents", [])]


@asynccontextmanager
async def open_objects(settings: ClientSettings) -> AsyncGenerator[Objects]:
    async with open_service("s3", frozenset(), settings) as client:
        yield S3Objects(cast("_Client", client))


class S3Objects:
    """Implements `Objects` on S3.

    S3 has no move. A copy is made only of the content that is named, and so is a deletion: it names the etag for
    servers that check it, and looks at the object right before it for those that do not.
    """

    def __init__(self, client: _Client) -> None:
        self._client = client

    async def read(self, bucket: str, key: str, bytes_max: int) -> bytes:
        what = f"reading s3://{bucket}/{key}"
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._client.get_object(Bucket=bucket, Key=key)
                size = int(answer.get("ContentLength", 0))
                if size > bytes_max:
                    raise Rejected(f"s3://{bucket}/{key} has {size:,} bytes; {bytes_max:,} is the most")
                async with answer["Body"] as body:
                    return await body.read()
        except CALL_ERRORS as error:
            raise _of_object(what, error) from error

    async def state(self, bucket: str, key: str) -> ObjectState | None:
        what = f"looking at s3://{bucket}/{key}"
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._client.head_object(Bucket=bucket, Key=key)
        except CALL_ERRORS as error:
            translated = _of_object(what, error)
            if isinstance(translated, ObjectGone):
                return None
            raise translated from error
        return ObjectState(str(answer["ETag"]).strip('"'), int(answer["ContentLength"]))

    async def copy(self, bucket: str, key: str, etag: str, *, to_bucket: str, to_key: str) -> None:
        what = f"copying s3://{bucket}/{key} to s3://{to_bucket}/{to_key}"
        source = {"Bucket": bucket, "Key": key}
        try:
            async with asyncio.timeout(COPY_S):
                await self._client.copy_object(
                    Bucket=to_bucket, Key=to_key, CopySource=source, CopySourceIfMatch=f'"{etag}"'
                )
        except CALL_ERRORS as error:
            raise _of_object(what, error) from error

    async def delete(self, bucket: str, key: str, etag: str) -> None:
        found = await self.state(bucket, key)
        if found is None:
            return
        if found.etag != etag:
            raise ObjectGone(f"s3://{bucket}/{key} has other content by now; it is not deleted")
        try:
            async with asyncio.timeout(CALL_S):
                await self._client.delete_object(Bucket=bucket, Key=key, IfMatch=f'"{etag}"')
        except CALL_ERRORS as error:
            raise _of_object(f"deleting s3://{bucket}/{key}", error) from error


def _of_object(what: str, error: Exception) -> WorkerError:
    """Return the error of a call for one object, which ends no worker, whatever S3 has against the object.

    Its message would come to the next worker, and end that too. After its tries it becomes a dead letter instead.
    """
    translated = _translated(what, error, _RIGHTS)
    return RetryLater(str(translated)) if isinstance(translated, ConfigError) else translated


def _translated(what: str, error: Exception, advice: str) -> WorkerError:
    said = f"{what}: {type(error).__name__}: {error}"
    if isinstance(error, ClientError):
        response = cast("Mapping[str, Any]", error.response)
        status, code = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0), response["Error"].get("Code")
        if code in _GONE:
            return ObjectGone(f"{said}; it is gone or was replaced")
        if status < 500 and code not in _BUSY:
            return ConfigError(f"{said}; check {advice}")
    elif isinstance(error, BotoCoreError) and not isinstance(error, PASSING):
        return ConfigError(f"{said}; check the region, credentials and endpoint")
    return RetryLater(f"{said}; try again")
