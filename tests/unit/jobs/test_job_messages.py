"""What targets say, before it reaches rows, logs and people."""

import time
from base64 import encodebytes
from random import Random
from urllib.parse import quote

import pytest

from worker.jobs.messages import MESSAGE_BYTES_MAX, tidy


def test_a_long_message_is_cut_between_characters() -> None:
    cut = tidy("é" * 1000)

    assert len(cut.encode()) == MESSAGE_BYTES_MAX
    assert set(cut) == {"é"}


def test_control_characters_go_and_lines_stay() -> None:
    assert tidy("\x1b[31mred\x1b[0m\r\n\tnext\x00\x9b line\u202e") == "[31mred[0m\n\tnext line"


def test_a_secret_is_hidden_in_every_spelling() -> None:
    assert tidy('got pass"word and {"key": "pass\\"word"}', ['pass"word']) == 'got *** and {"key": "***"}'


@pytest.mark.parametrize(
    "spelled", ["a%2Fb%2B%20c%3D", "a/b%2B%20c%3D", "a%2Fb%2B+c%3D", "a/b%2B+c=", "a%2fb%2b%20c%3d", r"a\/b+ c="]
)
def test_a_secret_is_hidden_as_it_stands_in_an_address_or_a_form(spelled: str) -> None:
    assert tidy(f"moved to https://example.com/?key={spelled}&x=1", ["a/b+ c="]) == (
        "moved to https://example.com/?key=***&x=1"
    )


@pytest.mark.parametrize(
    "spelled",
    [
        "pass%5C%22word",  # JSON, percent-encoded
        "pass%255C%2522word",  # and once more
        'pass\\\\\\"word',  # JSON in JSON
        "pass\\u005c\\u0022word",
        "pass&quot;word",
        "pass\\&quot;word",
        "cGFzcyJ3b3Jk",
        "Y0dGemN5SjNiM0pr",  # base64 of base64
        "pass&#x22;word",
        r"pass\x22word",
    ],
)
def test_a_secret_is_hidden_through_every_encoding_of_every_encoding(spelled: str) -> None:
    shown = tidy(f"got <{spelled}>.", ['pass"word'])

    assert shown == "got <***>."


def test_a_secret_is_hidden_inside_a_login_as_it_is_sent() -> None:
    assert tidy("got <dXNlcjpwYXNzIndvcmQ=>.", ['pass"word']) == "got <dXNlcj***>."


def test_base64_that_is_broken_into_lines_is_found() -> None:
    secret = "k" * 100
    written = encodebytes(secret.encode()).decode()

    assert tidy(f"got\n{written}.", [secret]).startswith("got\n***")
    assert "2tra" not in tidy(f"got\n{written}.", [secret])


def test_a_text_with_too_many_encodings_is_withheld_and_not_shown_unsearched() -> None:
    random = Random(1)
    pieces = ["%2525", "\\\\u0025", "&amp;#37;", "+", "abcdefgh", "YWJjZGVmZ2g="]
    hostile = "".join(random.choice(pieces) for _ in range(2_000))

    assert tidy(hostile, ['pass "word']).startswith("(withheld: ")


def test_of_a_long_text_nothing_is_shown_that_was_not_searched() -> None:
    assert "hunter" not in tidy("\x00" * 8_186 + "hunter%32%32", ["hunter22"])


def test_a_secret_that_is_cut_off_by_the_limit_is_hidden_all_the_same() -> None:
    assert "hunter" not in tidy("x" * (MESSAGE_BYTES_MAX - 3) + "hunter22", ["hunter22"])


def test_a_secret_inside_a_longer_one_leaves_no_rest_of_it() -> None:
    assert tidy("token-extended", ["token", "token-extended"]) == "***"


def test_a_value_too_short_to_be_a_secret_does_not_eat_the_message() -> None:
    assert tidy("a cat sat", ["a"]) == "a cat sat"


@pytest.mark.parametrize("character", ["%", "+", "\\", "é", "k", "\udc80"])
def test_no_secret_makes_a_message_slow(character: str) -> None:
    began = time.process_time()

    tidy(quote(character, errors="replace") * 10_000 + "\\" * 10_000, [character * 500 + "x", character * 60_000])

    assert time.process_time() - began < 2
