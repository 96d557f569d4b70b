"""Ids are random, of one length, and never given out twice, whoever asks."""

import multiprocessing
import re
from concurrent.futures import ThreadPoolExecutor

from worker.runtime.ids import DRAWN, random_id, random_long_id


def test_ids_are_hexadecimal_and_of_one_length() -> None:
    assert re.fullmatch(r"[0-9a-f]{16}", random_id())
    assert re.fullmatch(r"[0-9a-f]{32}", random_long_id())


def test_no_id_comes_twice_however_often_the_stock_is_renewed() -> None:
    ids = [random_id() for _ in range(DRAWN)]

    assert len(set(ids)) == len(ids)


def test_threads_never_get_the_same_id() -> None:
    with ThreadPoolExecutor(4) as threads:
        ids = list(threads.map(_an_id, range(2_000)))

    assert len(set(ids)) == len(ids)


def test_a_forked_process_does_not_use_its_parents_stock() -> None:
    random_id()  # so that there is a stock
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send([random_id() for _ in range(10)]))

    child.start()
    drawn_there = ours.recv()
    child.join(30)

    assert not {random_id() for _ in range(10)} & set(drawn_there)


def _an_id(_: int) -> str:
    return random_long_id()
