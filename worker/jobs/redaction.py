"""Finds secrets in a text, also escaped, percent-encoded, in base64, or in nested encodings.

Programs differ in which characters they encode and how, so no list of spellings is complete. The text is decoded
instead, by every decoder in every order, up to `DEPTH_MAX` levels. Each decoded character records its position in the
original text, so that a secret found there can be hidden. The work is bounded: `TooEntangled` means that the bound was
reached, and then no part of the text may be shown.
"""

import base64
import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

DEPTH_MAX: Final = 3
CHARS_MAX: Final = 160_000  # decoded in total; takes about 50 ms

Span: TypeAlias = tuple[int, int]

_BASE64_RUN: Final = re.compile(r"[A-Za-z0-9+/_-]{2,}(?:\r?\n[A-Za-z0-9+/_-]+)*={0,2}")
_BASE64_MIN: Final = 6  # characters, for four bytes
_LINE_END: Final = re.compile(r"[\r\n]")
_PERCENT_RUN: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_FORM_RUN: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+|\+")
_ENTITY: Final = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_BACKSLASH: Final = re.compile(
    r"\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}"
    r"|\\u[0-9A-Fa-f]{4}|\\u\{[0-9A-Fa-f]{1,6}\}|\\U[0-9A-Fa-f]{8}"
    r"|(?:\\x[0-9A-Fa-f]{2})+|(?:\\[0-3][0-7]{2})+|\\.",
    re.DOTALL,
)
_UNREADABLE: Final = frozenset(map(chr, [*range(9), 11, 12, *range(14, 32), 127]))
_READABLE_MIN: Final = 4
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0"}


class TooEntangled(Exception):
    """Signals that the text has too many nested encodings to be searched completely."""


@dataclass(slots=True)
class _View:
    """Holds a decoded text, and for each character its position in the original text."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]


@dataclass(slots=True)
class _Decoding:
    """Builds a decoded view from its source view."""

    source: _View
    parts: list[str] = field(default_factory=list[str])
    starts: list[int] = field(default_factory=list[int])
    ends: list[int] = field(default_factory=list[int])

    def keep(self, begin: int, end: int) -> None:
        """Copy characters unchanged."""
        self.parts.append(self.source.text[begin:end])
        self.starts.extend(self.source.starts[begin:end])
        self.ends.extend(self.source.ends[begin:end])

    def put(self, decoded: str, begin: int, end: int) -> None:
        """Write the decoded form of the source's characters from `begin` to `end`."""
        self.parts.append(decoded)
        self.starts.extend([self.source.starts[begin]] * len(decoded))
        self.ends.extend([self.source.ends[end - 1]] * len(decoded))

    def put_bytes(self, written: bytes, begin: int, width: int) -> None:
        """Write bytes that take `width` characters each: as UTF-8, invalid bytes as Latin-1."""
        at = begin
        for character in written.decode("utf-8", "surrogateescape"):
            end = at + width * len(character.encode("utf-8", "surrogateescape"))
            code = ord(character)
            self.put(chr(code - 0xDC00) if 0xDC80 <= code <= 0xDCFF else character, at, end)
            at = end

    def break_off(self) -> None:
        """Insert a separator, so that no match spans this position."""
        self.parts.append("\0")
        self.starts.append(0)
        self.ends.append(0)

    def view(self) -> _View:
        return _View("".join(self.parts), self.starts, self.ends)


_Decoder: TypeAlias = Callable[[_View], _View | None]


def find_secrets(text: str, secrets: Sequence[str], *, chars_max: int = CHARS_MAX) -> list[Span]:
    """Return the spans of secrets in the text, in any encoding. Raises `TooEntangled`."""
    decoders = _decoders("".join(secrets))
    places = range(len(text) + 1)
    waiting = [(_View(text, places[:-1], places[1:]), 0)]
    spans, seen, left = list[Span](), {text}, chars_max
    while waiting:
        view, depth = waiting.pop()
        spans.extend(_spans(view, secrets))
        if depth == DEPTH_MAX:
            continue
        for decode in decoders:
            decoded = decode(view)
            if decoded is None or decoded.text in seen:
                continue
            left -= len(decoded.text)
            if left < 0:
                raise TooEntangled
            seen.add(decoded.text)
            waiting.append((decoded, depth + 1))
    return spans


def without(text: str, spans: Sequence[Span], instead: str) -> str:
    """Return the text with each span replaced; overlapping spans become one."""
    parts, at = list[str](), 0
    for begin, end in _merged(spans):
        parts += [text[at:begin], instead]
        at = end
    return "".join([*parts, text[at:]])


def _spans(view: _View, secrets: Sequence[str]) -> Iterator[Span]:
    for secret in secrets:
        at = view.text.find(secret)
        while at >= 0:
            end = at + len(secret)
            yield min(view.starts[at:end]), max(view.ends[at:end])
            at = view.text.find(secret, end)


def _merged(spans: Sequence[Span]) -> Iterator[Span]:
    held: Span | None = None
    for begin, end in sorted(spans):
        if held is None or begin >= held[1]:
            if held is not None:
                yield held
            held = begin, end
        else:
            held = held[0], max(held[1], end)
    if held is not None:
        yield held


# --- decoders ---------------------------------------------------------------------------------------------------------


def _decoders(used: str) -> Sequence[_Decoder]:
    """Return the decoders that matter for secrets made of these characters."""
    unreadable = "".join(sorted(_UNREADABLE - set(used)))
    readable = re.compile(f"[^{re.escape(unreadable)}\udc80-\udcff]{{{_READABLE_MIN},}}")
    plain: Sequence[_Decoder] = (_unpercent, _unescape_backslash, _unescape_html, _unbase64(readable))
    # In a form a plus sign encodes a space. That matters only if a secret contains a space.
    return (*plain, _unform) if " " in used else plain


def _decoded(view: _View, pattern: re.Pattern[str], put: Callable[[_Decoding, re.Match[str]], None]) -> _View | None:
    """Decode every match of a pattern; None if there is no match."""
    made, at = _Decoding(view), 0
    for match in pattern.finditer(view.text):
        made.keep(at, match.start())
        put(made, match)
        at = match.end()
    if not at:
        return None
    made.keep(at, len(view.text))
    return made.view()


def _unpercent(view: _View) -> _View | None:
    return _decoded(view, _PERCENT_RUN, _put_percent) if "%" in view.text else None


def _unform(view: _View) -> _View | None:
    return _decoded(view, _FORM_RUN, _put_percent) if "+" in view.text else None


def _put_percent(made: _Decoding, match: re.Match[str]) -> None:
    if match[0] == "+":
        made.put(" ", match.start(), match.end())
    else:
        made.put_bytes(bytes.fromhex(match[0].replace("%", "")), match.start(), 3)


def _unescape_html(view: _View) -> _View | None:
    return _decoded(view, _ENTITY, _put_entity) if "&" in view.text else None


def _put_entity(made: _Decoding, match: re.Match[str]) -> None:
    made.put(html.unescape(match[0]), match.start(), match.end())


def _unescape_backslash(view: _View) -> _View | None:
    return _decoded(view, _BACKSLASH, _put_backslash) if "\\" in view.text else None


def _put_backslash(made: _Decoding, match: re.Match[str]) -> None:
    written, (begin, end) = match[0], match.span()
    match written[1]:
        case "u" | "U" if len(written) == 12:  # a surrogate pair, for a character above U+FFFF
            pair = bytes.fromhex(written[2:6] + written[8:12])
            made.put(pair.decode("utf-16-be"), begin, end)
        case "u" | "U" if len(written) > 2:
            code = int(written[2:].strip("{}"), 16)
            made.put(chr(code) if code <= 0x10FFFF else written, begin, end)
        case "x" if len(written) > 2:
            made.put_bytes(bytes.fromhex(written.replace("\\x", "")), begin, 4)
        case "0" | "1" | "2" | "3" if len(written) > 2:
            made.put_bytes(bytes(int(octal, 8) for octal in written.split("\\")[1:]), begin, 4)
        case other:
            made.put(_LETTERS.get(other, other), begin, end)


def _unbase64(readable: re.Pattern[str]) -> _Decoder:
    """Return a decoder of base64 runs. Only `readable` stretches count: other text was never base64."""

    def decode(view: _View) -> _View | None:
        made = _Decoding(view)
        for match in _BASE64_RUN.finditer(view.text):
            _read_run(made, match, readable)
        return made.view() if made.parts else None

    return decode


def _read_run(made: _Decoding, match: re.Match[str], readable: re.Pattern[str]) -> None:
    """Decode a run from each of its first four characters: other characters may precede the encoded text."""
    begin, written = match.start(), match[0].rstrip("=")
    places = [begin + index for index, character in enumerate(written) if character not in "\r\n"]
    letters = _LINE_END.sub("", written).replace("-", "+").replace("_", "/")
    for skipped in range(min(4, len(letters) - _BASE64_MIN + 1)):
        _read_aligned(made, match.end(), places[skipped:], letters[skipped:], readable)


def _read_aligned(
    made: _Decoding, run_end: int, places: Sequence[int], letters: str, readable: re.Pattern[str]
) -> None:
    letters = letters[:-1] if len(letters) % 4 == 1 else letters  # a single remaining letter encodes nothing
    text = base64.b64decode(letters + "=" * (-len(letters) % 4)).decode("utf-8", "surrogateescape")
    for stretch in readable.finditer(text):
        at = len(text[: stretch.start()].encode("utf-8", "surrogateescape"))
        for character in stretch[0]:
            stop = at + len(character.encode("utf-8", "surrogateescape"))
            final = min((stop * 4 - 1) // 3, len(places) - 1)
            # Hide the padding together with the last character: it would reveal the secret's length.
            end = run_end if final >= len(letters) - 1 else places[final] + 1
            made.put(character, places[at * 4 // 3], end)
            at = stop
        made.break_off()
