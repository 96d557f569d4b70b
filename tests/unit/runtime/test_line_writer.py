"""Lines to a stream that is full, slow or gone: whoever writes neither waits nor fails, and what is lost counts."""

import asyncio
import errno
import json
import os
import threading

import pytest

from worker.runtime.line_writer import LineWriter, line_writer


class Stream:
    """Takes some bytes at a time; can be full, gone, or stop taking anything until it is let go."""

    def __init__(self, bytes_at_once: int = 1_000_000) -> None:
        self.content = b""
        self.trouble: int | None = None
        self.room: int | None = None  # bytes until the trouble; None: for good
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.is_waited_for = threading.Event()
        self._bytes_at_once = bytes_at_once

    def write(self, content: bytes) -> int:
        self.is_waited_for.set()
        self.may_go_on.wait()
        count = min(len(content), self._bytes_at_once)
        if self.trouble is not None:
            count = min(count, self.room or 0)
            if not count:
                raise OSError(self.trouble, os.strerror(self.trouble))
            self.room = (self.room or 0) - count
        self.content += content[:count]
        return count

    @property
    def lines(self) -> list[str]:
        return self.content.decode().splitlines()


def reporting(stream: Stream, *, waiting_bytes_max: int = 1_000_000) -> LineWriter:
    writer = LineWriter(stream.write, waiting_bytes_max=waiting_bytes_max, report_every_s=0.01)
    writer.describe_loss = lambda lost, reason: f"lost {lost}: {reason}"
    return writer


async def settled(writer: LineWriter) -> None:
    """Wait until the thread has tried all that was written so far."""
    try:
        await writer.deliver("")
    except OSError:
        return


async def test_a_line_of_json_stays_valid_on_a_stream_that_lacks_its_characters() -> None:
    stream, text = Stream(), "na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve \N{GRINNING FACE} \ud800"
    writer = LineWriter(stream.write, encoding="ascii")

    writer.write(json.dumps({"reason": text}, ensure_ascii=False) + "\n")
    await settled(writer)

    assert json.loads(stream.content) == {"reason": text}


@pytest.mark.parametrize("bytes_at_once", [1, 7, 1_000_000])
def test_lines_arrive_whole_and_in_order(bytes_at_once: int) -> None:
    stream = Stream(bytes_at_once)
    writer = reporting(stream)

    for number in range(200):
        writer.write(f"line {number}\n")
    writer.close()

    assert stream.lines == [f"line {number}" for number in range(200)]
    assert writer.lost == 0


@pytest.mark.parametrize("trouble", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("room", [0, 4])
async def test_lines_that_do_not_fit_are_counted_and_reported_before_the_next_one(trouble: int, room: int) -> None:
    stream = Stream()
    writer = reporting(stream)
    writer.write("first\n")
    await settled(writer)
    stream.room, stream.trouble = room, trouble

    for number in range(3):
        writer.write(f"lost {number}\n")
    await settled(writer)
    stream.trouble = None
    writer.write("next\n")
    writer.close()

    assert writer.lost == 3
    rest = ["lost"] if room else []  # as much as there was room for, on a line of its own
    assert stream.lines[: 1 + len(rest)] == ["first", *rest]
    assert stream.lines[1 + len(rest) :] == [f"lost 3: {os.strerror(trouble)}", "next"]


async def test_a_loss_is_reported_though_nothing_more_is_written() -> None:
    stream, reported = Stream(), asyncio.Event()
    loop = asyncio.get_running_loop()
    writer = reporting(stream)

    def describe(lost: int, _: str) -> str:
        if stream.trouble is None:
            loop.call_soon_threadsafe(reported.set)
        return f"lost {lost}"

    writer.describe_loss = describe
    stream.trouble = errno.ENOSPC
    writer.write("lost\n")
    await settled(writer)

    stream.trouble = None
    await asyncio.wait_for(reported.wait(), 30)
    writer.close()

    assert stream.lines == ["lost 1"]


@pytest.mark.parametrize("waiting_bytes_max", [10, 100, 5_000])
def test_a_reader_that_stopped_makes_nobody_wait_and_what_it_does_not_take_is_counted(waiting_bytes_max: int) -> None:
    stream = Stream()
    writer = reporting(stream, waiting_bytes_max=waiting_bytes_max)
    stream.may_go_on.clear()
    writer.write("held up\n")
    stream.is_waited_for.wait()

    for _ in range(1_000):  # would never end if it waited
        writer.write("0123456789"[:9] + "\n")
    kept = waiting_bytes_max // 10
    assert writer.lost == 1_000 - kept

    stream.may_go_on.set()
    writer.close()
    assert stream.lines[0] == "held up"
    assert sum(line == "012345678" for line in stream.lines) == kept
    assert [line for line in stream.lines if line.startswith("lost")] == [
        f"lost {1_000 - kept}: more was written than its reader takes"
    ]


def test_a_reader_that_stopped_does_not_keep_the_process() -> None:
    stream = Stream()
    writer = reporting(stream)
    stream.may_go_on.clear()
    writer.write("held up\n")
    stream.is_waited_for.wait()

    writer.close(timeout_s=0.01)  # returns

    stream.may_go_on.set()
    writer.close()


@pytest.mark.parametrize("trouble", [errno.EPIPE, errno.ECONNRESET])
async def test_a_reader_that_is_gone_is_noticed_once(trouble: int) -> None:
    stream, noticed = Stream(), list[str]()
    writer = reporting(stream)
    writer.on_broken = lambda: noticed.append("gone")
    assert not writer.is_broken

    stream.trouble = trouble
    for _ in range(3):
        writer.write("unread\n")
        await settled(writer)
    writer.close()

    assert writer.is_broken
    assert noticed == ["gone"]
    assert writer.lost == 3


async def test_a_full_disk_is_no_reader_that_is_gone() -> None:
    stream = Stream()
    writer = reporting(stream)
    stream.trouble = errno.ENOSPC

    writer.write("lost\n")
    await settled(writer)

    assert not writer.is_broken
    writer.close()


async def test_whoever_waits_for_a_line_learns_what_became_of_it() -> None:
    stream = Stream()
    writer = reporting(stream)
    stream.trouble = errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        await writer.deliver("not yet\n")

    stream.trouble = None
    await writer.deliver("now\n")

    assert stream.lines == ["now"]
    assert writer.lost == 0  # its writer knows, and tries again
    writer.close()


async def test_after_the_end_nobody_waits_for_a_line() -> None:
    writer = reporting(Stream())
    writer.close()

    with pytest.raises(OSError, match="more was written"):
        await writer.deliver("late\n")


async def test_what_was_logged_is_confirmed_only_if_it_was_written() -> None:
    stream = Stream()
    writer = reporting(stream)
    await writer.confirmed(lambda: _say(writer, "first\n"))
    stream.trouble = errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        await writer.confirmed(lambda: _say(writer, "second\n"))

    stream.trouble = None
    await writer.confirmed(lambda: _say(writer, "third\n"))

    assert stream.lines == ["first", "lost 1: No space left on device", "third"]
    writer.close()


def _say(writer: LineWriter, text: str) -> None:
    writer.write(text)


# --- real streams -----------------------------------------------------------------------------------------------------


def test_a_real_disk_that_is_full_raises_nothing() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123  a device
        writer = line_writer(full, "full")
        for _ in range(10):
            writer.write("lost\n")
        writer.close()

    assert writer.lost == 10
    assert not writer.is_broken


@pytest.mark.parametrize("blocks", [True, False])
def test_a_real_pipe_that_is_full_holds_nobody_up_and_is_written_when_it_is_read(blocks: bool) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, blocks)  # whoever shares the pipe may have asked for either
    with os.fdopen(write_end, "w") as pipe:
        writer = line_writer(pipe, "pipe")
        for _ in range(100):
            writer.write("x" * 9_999 + "\n")  # far more than a pipe holds

    taken = threading.Thread(target=_read, args=(read_end, content := bytearray(), 1_000_000))
    taken.start()
    taken.join()
    writer.close()

    assert len(content) == 1_000_000
    assert writer.lost == 0


def test_a_real_pipe_without_a_reader_is_noticed() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    gone = threading.Event()
    with os.fdopen(write_end, "w") as pipe:
        writer = line_writer(pipe, "pipe")
        writer.on_broken = gone.set

        writer.write("unread\n")
        writer.close()

    assert gone.is_set()


async def test_a_stream_that_was_closed_before_the_process_began_takes_nothing_and_stops_nothing() -> None:
    writer = line_writer(None, "standard output")
    writer.write("nowhere\n")

    with pytest.raises(OSError, match="standard output was closed before the process began"):
        await writer.deliver("an alert\n")
    writer.close()

    assert (writer.lost, writer.is_broken, writer.isatty()) == (1, False, False)


def _read(number: int, content: bytearray, bytes_max: int) -> None:
    while len(content) < bytes_max and (some := os.read(number, 65_536)):
        content += some
    os.close(number)


def test_a_text_that_is_no_text_is_written_all_the_same() -> None:
    stream = Stream()
    writer = reporting(stream)

    writer.write("half a character: \ud800\n")
    writer.close()

    assert stream.lines == ["half a character: \\ud800"]
