"""What a message of the inbox tells, whichever way it came."""

from typing import Any

import pytest

from consumers.inbox.notifications import (
    BadNotification,
    EventNotification,
    Happened,
    NoNotification,
    ObjectNotification,
    PlainNotification,
    read_notification,
)
from tests.support.clock.manual import NOON
from tests.support.worlds.inbox import BUCKET, an_object, message, notification, over_bus, over_topic

KEY = "orders/2026-03-03/a.csv"
DIRECT = notification(an_object(KEY))
EVENT = {"source": "acme.billing", "detail-type": "Closed", "detail": {"rows": 1}}


def only(body: object) -> object:
    [news] = read_notification(message(body))
    return news


@pytest.mark.parametrize(
    "body",
    [
        DIRECT,
        over_topic(DIRECT),
        over_topic(over_topic(DIRECT)),
        over_bus(KEY, "e1", "01"),
        over_topic(over_bus(KEY, "e1", "01")),
    ],
    ids=["direct", "topic", "two-topics", "bus", "bus-and-topic"],
)
def test_an_object_is_the_same_news_whichever_way_it_came(body: dict[str, Any]) -> None:
    assert only(body) == ObjectNotification(
        bucket=BUCKET,
        key=KEY,
        happened=Happened.CREATED,
        etag="e1",
        sequencer="01".ljust(64, "0"),
        size=12,
        at=NOON,
    )


def test_keys_are_decoded_where_s3_encodes_them_and_only_there() -> None:
    encoded = only(notification(an_object("orders/a%2Bb+c/%C3%A9.csv")))
    plain = only(over_bus("orders/a%2Bb+c", "e", "01"))

    assert isinstance(encoded, ObjectNotification)
    assert isinstance(plain, ObjectNotification)
    assert (encoded.key, plain.key) == ("orders/a+b c/é.csv", "orders/a%2Bb+c")


@pytest.mark.parametrize(
    ("earlier", "later"),
    [("0055AED6DCD90281E5", "0055AED6DCD90281E6"), ("0055", "00551"), ("0055ae", "0055AF"), ("", "00")],
)
def test_sequencers_are_compared_as_s3_says(earlier: str, later: str) -> None:
    """By their digits from the left, the shorter one filled up with zeros."""
    first, second = (only(notification(an_object(sequencer=text))) for text in (earlier, later))

    assert isinstance(first, ObjectNotification)
    assert isinstance(second, ObjectNotification)
    assert first.sequencer < second.sequencer


@pytest.mark.parametrize(
    ("name", "happened"),
    [
        ("ObjectCreated:CompleteMultipartUpload", Happened.CREATED),
        ("s3:ObjectCreated:Copy", Happened.CREATED),
        ("ObjectRemoved:DeleteMarkerCreated", Happened.DELETED),
        ("LifecycleExpiration:Delete", Happened.DELETED),
    ],
)
def test_all_ways_to_write_and_to_delete_are_known(name: str, happened: Happened) -> None:
    news = only(notification(an_object(), name=name))

    assert isinstance(news, ObjectNotification)
    assert news.happened is happened


@pytest.mark.parametrize(
    "body",
    [
        {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": BUCKET},
        notification(an_object(), name="ObjectTagging:Put"),
        over_bus(KEY, "e", "01", kind="Object Tags Added"),
    ],
    ids=["test", "tags", "tags-over-bus"],
)
def test_what_changes_no_content_is_no_news(body: object) -> None:
    assert isinstance(only(body), NoNotification)


def test_events_and_other_json_stay_as_they_are() -> None:
    assert only(EVENT) == EventNotification(EVENT)
    assert only(over_topic({"kind": "load"})) == PlainNotification({"kind": "load"})


def test_a_message_may_tell_of_several_objects() -> None:
    assert len(read_notification(message(notification(an_object("a"), an_object("b"))))) == 2


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("no json", "not JSON"),
        ("[]", "no JSON object"),
        ({"Records": [{"eventSource": "aws:kinesis"}]}, "none of S3's"),
        ({"Records": [7]}, "none of S3's"),
        ({"Records": [7] * 1_001}, "1000 is the most"),
        (notification({"eTag": "e"}), "no key"),
        (notification(an_object("k" * 1_025)), "longer than the 1024 bytes"),
        (notification(an_object(sequencer="xyz")), "no sequencer"),
        (notification(an_object(sequencer="0" * 65)), "no sequencer"),
        ({**over_topic({}), "Type": "SubscriptionConfirmation"}, "confirm its subscription"),
        (over_topic(over_topic(over_topic(DIRECT))), "more than 3 topics"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_its_reason(body: object, problem: str) -> None:
    with pytest.raises(BadNotification, match=problem):
        read_notification(message(body))
