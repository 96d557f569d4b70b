"""Checks that the archive's target can be written, without writing to it."""

import os
from collections.abc import AsyncIterator

from worker.core.errors import WorkerError
from worker.operations.doctor.aws_calls import AwsRefusal
from worker.operations.doctor.iam import IamCalls
from worker.operations.doctor.report import Diagnosis, doubtful, fine, wrong
from worker.store.archive_url import FileArchive, S3Archive

AREA = "archive"


def look_at_directory(place: FileArchive) -> Diagnosis:
    """Check the directory, or the nearest one above it that exists: the archiver makes the rest."""
    existing = next(path for path in (place.directory, *place.directory.parents) if path.exists())
    if not existing.is_dir():
        return wrong(AREA, str(place), f"{existing} is not a directory", "choose a directory for the archive")
    if not os.access(existing, os.W_OK | os.X_OK):
        return wrong(AREA, str(place), f"{existing} cannot be written", "let the worker's user write there")
    what = "it can be written" if existing == place.directory else f"it will be made in {existing}"
    return fine(AREA, str(place), what)


async def look_at_bucket(calls: IamCalls, place: S3Archive) -> AsyncIterator[Diagnosis]:
    """Check that the bucket answers. That objects can be written shows only when one is."""
    try:
        await calls.call("s3", "HeadBucket", {"Bucket": place.bucket})
    except AwsRefusal as refusal:
        yield _judged(place, refusal)
    except WorkerError as trouble:
        yield wrong(AREA, str(place), f"no answer: {trouble}", "see the network, the region and the endpoint")
    else:
        yield fine(AREA, str(place), "the bucket exists and answers", proven_by="asks for the head of the bucket")


def _judged(place: S3Archive, refusal: AwsRefusal) -> Diagnosis:
    if refusal.is_for_lack_of_rights or refusal.code == "403":
        remedy = "allow s3:ListBucket on the bucket for this check, and s3:PutObject below the prefix for the archive"
        return doubtful(AREA, str(place), f"it cannot be checked: {refusal}", remedy)
    return wrong(AREA, str(place), f"the bucket answered {refusal}", "make the bucket, or correct INTERLOCK_ARCHIVE")
