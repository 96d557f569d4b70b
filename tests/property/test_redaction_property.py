"""Secrets in what targets say: whatever they were written through, and through what that was written, none is shown."""

import base64
import html
import json
from collections.abc import Callable
from typing import Final, TypeAlias
from urllib.parse import quote, quote_plus

from hypothesis import example, given
from hypothesis import strategies as st

from worker.jobs.messages import MESSAGE_BYTES_MAX, tidy

Encoding: TypeAlias = Callable[[str], str]

ENCODINGS: Final[dict[str, Encoding]] = {
    "as it is": lambda text: text,
    "json": lambda text: json.dumps(text)[1:-1],
    "json, not only ascii": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "json of a browser": lambda text: json.dumps(text)[1:-1].replace("/", r"\/").replace("<", r"\u003c"),
    "percent": lambda text: quote(text, safe=""),
    "percent of an address": lambda text: quote(text, safe="/:?=&"),
    "percent, lower case": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "form": quote_plus,
    "html": html.escape,
    "html, numbered": lambda text: "".join(char if char.isalnum() else f"&#{ord(char)};" for char in text),
    "html, hexadecimal": lambda text: "".join(char if char.isalnum() else f"&#x{ord(char):X};" for char in text),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 of an address": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base64 of a login": lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
    "a repr": lambda text: repr(text)[1:-1],
    "a repr of bytes": lambda text: repr(text.encode())[2:-1],
    "octal": lambda text: "".join(
        f"\\{byte:03o}" if byte in {*b"\\", *range(127, 256)} else chr(byte) for byte in text.encode()
    ),
    "a shell's": lambda text: "".join(char if char.isalnum() else f"\\{char}" for char in text),
}
CHARACTERS: Final = st.one_of(
    st.sampled_from("abcXYZ019 \"'\\/%&+=<>;#?:._-~!*(){}[]$@^|`,\n\té€ß漢😀"), st.characters(exclude_categories=["C"])
)
SECRETS: Final = st.text(CHARACTERS, min_size=6, max_size=24).filter(lambda text: len(text.strip()) > 5)


@given(SECRETS, st.lists(st.sampled_from(sorted(ENCODINGS)), min_size=1, max_size=3), st.sampled_from(["", "x", "ab"]))
@example('pa"ss word', ["json", "percent"], "")
@example("pa%73s&amp;\\u0041", ["json", "percent", "html"], "")
@example("k3y/+=", ["base64", "percent", "base64"], "ab")
def test_no_secret_is_shown_through_three_encodings(secret: str, through: list[str], before: str) -> None:
    written = secret
    for name in through:
        written = ENCODINGS[name](written)

    shown = tidy(f"the target said: {before}[{written}] and no more", [secret])

    assert written not in shown
    assert shown.startswith("the target said: ")
    assert "***" in shown or "withheld" in shown


@given(SECRETS, st.data())
def test_no_secret_is_shown_whatever_characters_a_program_encodes(secret: str, data: st.DataObject) -> None:
    """Each program has its own list of what it leaves as it is."""
    per_character = st.sampled_from(
        ["as it is", "json", "percent", "percent, lower case", "html, numbered", "a shell's"]
    )
    written = secret
    for _ in range(data.draw(st.integers(1, 2))):
        encode = ENCODINGS[data.draw(per_character)]
        chosen = data.draw(st.sets(st.sampled_from(sorted(set(written)))))
        # What takes a code's own signs away is always encoded: else the text does not say the same any more.
        written = "".join(encode(char) if char in chosen or char in '%\\&"' else char for char in written)

    shown = tidy(f"it said <{written}>", [secret])

    assert written not in shown
    assert shown.startswith("it said <")


@given(st.text(CHARACTERS, max_size=2_000), st.lists(SECRETS, max_size=3))
def test_what_is_shown_is_short_and_never_a_secret(text: str, secrets: list[str]) -> None:
    shown = tidy(text, secrets)

    assert len(shown.encode()) <= MESSAGE_BYTES_MAX
    assert not any(secret in shown for secret in secrets)
