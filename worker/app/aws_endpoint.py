"""Locates AWS for what a process uses besides its store."""

from worker.config.settings import Settings
from worker.jobs.aws.client import AwsEndpoint
from worker.store.url import DynamoPlace, locate


def aws_endpoint(settings: Settings) -> AwsEndpoint:
    place = locate(settings.store)
    return (
        AwsEndpoint(region=place.region, endpoint=place.endpoint) if isinstance(place, DynamoPlace) else AwsEndpoint()
    )
