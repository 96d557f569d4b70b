"""Keeps an archive, or summaries, in a bucket of S3."""

from typing import Final

from worker.core.run.state import FailureCategory
from worker.jobs.aws.client import Aws
from worker.jobs.aws.errors import AwsTrouble
from worker.store.archive_url import S3Archive

_HINTS: Final = {
    "NoSuchBucket": "make the bucket, or correct {setting}",
    "AccessDenied": "allow the worker s3:PutObject on the bucket's prefix, and the use of the bucket's key",
    "PermanentRedirect": "the bucket is in another region; set AWS_REGION to it",
}


class S3Target:
    """Keeps each object under the prefix of a bucket."""

    def __init__(
        self,
        aws: Aws,
        place: S3Archive,
        *,
        setting: str = "INTERLOCK_ARCHIVE",
        content_type: str = "application/x-ndjson",
        encoding: str = "gzip",
    ) -> None:
        self._aws, self._place, self._setting = aws, place, setting
        self._kind = {"ContentType": content_type, **({"ContentEncoding": encoding} if encoding else {})}

    async def put(self, name: str, content: bytes) -> None:
        parameters = {
            "Bucket": self._place.bucket,
            "Key": f"{self._place.prefix}{name}",
            "Body": content,
            **self._kind,
        }
        try:
            await self._aws.call("s3", "PutObject", parameters)
        except AwsTrouble as trouble:
            hint = _HINTS.get(trouble.code, "")
            if not hint:
                raise
            message = f"the archive {self._place} rejects its objects: {trouble}; {hint.format(setting=self._setting)}"
            raise AwsTrouble(message, category=FailureCategory.PERMANENT, code=trouble.code) from trouble
