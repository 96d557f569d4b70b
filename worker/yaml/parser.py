"""Parses YAML text into plain values with the line and column of each, within fixed limits.

The dialect is the core schema of YAML 1.2 with decimal numbers only: `10:00`, `2026-03-31`, `007` and `on` are text.
The builder uses the parser's event stream and an explicit stack, so neither nesting nor aliases can exhaust memory: the
value of an alias is shared, and is counted as if it were written out.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

import yaml

from worker.yaml.document import BadYaml, Document, Fault, MemberPlace, Places, TextMark

TEXT_BYTES_MAX = 256 * 1024
DEPTH_MAX = 32
NODES_MAX = 20_000
# Aliases repeat texts as well as nodes; this limits the length of the document with all aliases written out.
CHARACTERS_MAX = 4 * TEXT_BYTES_MAX
DIGITS_MAX = 38  # the precision of a DynamoDB number
_FAULTS_MAX = 100
# The parser accepts a key only if its colon follows within 1,024 characters. The limit also applies to the key written
# as JSON.
_KEY_MAX = 1000
_ESCAPE_LENGTH_MAX = 12

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_SURROGATE_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def is_text(plain: str) -> bool:
    """Return whether an unquoted scalar with this spelling is text."""
    return plain not in _WORDS and plain != "<<" and not _is_number(plain)


def _is_number(plain: str) -> bool:
    return bool(_INTEGER.fullmatch(plain) or _FLOAT.fullmatch(plain))


def read_yaml(text: str) -> Document:
    """Parse one document. Raises `BadYaml` if the text cannot be parsed or exceeds a limit."""
    _check_size(text)
    builder = _Builder()
    try:
        for event in _events(_join_surrogates(text)):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise BadYaml(_mark_of(error), *_explain(error)) from error
    except yaml.reader.ReaderError as error:
        mark = _mark_at(text, error.position)
        raise BadYaml(mark, f"character #x{ord(_character(error)):04x} is not allowed in YAML") from error
    return builder.document()


def _events(text: str) -> Iterator[yaml.Event]:
    loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.parse(text, Loader=loader)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]: untyped stub


def _check_size(text: str) -> None:
    try:
        # Count characters first, so that a huge text is not copied only to be rejected.
        size = len(text) if len(text) > TEXT_BYTES_MAX else len(text.encode())
    except UnicodeEncodeError as error:
        raise BadYaml(_mark_at(text, error.start), "half of a surrogate pair is not a character") from error
    if size > TEXT_BYTES_MAX:
        raise BadYaml(
            TextMark(1, 1), f"the text is larger than {TEXT_BYTES_MAX // 1024} KiB", "split it, or shorten it"
        )


def _join_surrogates(text: str) -> str:
    """Join surrogate pairs: JSON writes characters above U+FFFF as two escapes, which YAML rejects."""
    if "\\u" not in text:
        return text
    return _SURROGATE_PAIR.sub(_joined, text)


def _joined(match: re.Match[str]) -> str:
    backslashes, high, low = match.groups()
    return f"{backslashes}\\U{0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00:08x}"


class _ParserMark(Protocol):
    """Describes the position type of both the C and the Python parser, counted from 0."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


def _mark(mark: _ParserMark | None) -> TextMark:
    return TextMark(mark.line + 1, mark.column + 1) if mark else TextMark(1, 1)


def _mark_of(error: yaml.MarkedYAMLError) -> TextMark:
    return _mark(error.problem_mark or error.context_mark)


def _mark_at(text: str, position: int) -> TextMark:
    before = text[: max(position, 0)]
    return TextMark(before.count("\n") + 1, len(before) - before.rfind("\n"))


_SPECIAL: Final = "text that begins with `*`, `&` or `%` must be quoted"
# Maps a part of the parser's message to the most common remedy.
_REMEDIES: Final = {
    "alias": _SPECIAL,
    "anchor": _SPECIAL,
    "directive": _SPECIAL,
    "cannot start any token": "indent with spaces, and quote text that begins with a tab, `@` or a backtick",
    "mapping values are not allowed": "indent keys of one section alike, and quote text that has a colon and a space",
    "did not find expected key": "indent keys of one section alike",
    "did not find expected node content": "add the value that is missing; text that begins with `:` must be quoted",
    "did not find expected ','": "put a comma before it, or close the bracket before",
    "could not find expected ':'": "write `key: value`",
    "sequence entries are not allowed": "begin the list on a line of its own",
    "scanning a quoted scalar": "close the quotation mark",
}


def _character(error: yaml.reader.ReaderError) -> str:
    character: object = error.character
    return chr(character) if isinstance(character, int) else str(character)[:1] or "\0"


def _explain(error: yaml.MarkedYAMLError) -> tuple[str, str]:
    problem = f"{error.context}, {error.problem}" if error.context else str(error.problem)
    return problem, next((remedy for words, remedy in _REMEDIES.items() if words in problem), "")


_START = TextMark(1, 1)
_NO_KEY = object()
_REFUSED_KEY = object()
_MERGE_KEY = object()


@dataclass(slots=True)
class _Size:
    """Counts the nodes and characters read so far, with aliases written out."""

    nodes: int = 0
    characters: int = 0


@dataclass(slots=True)
class _Open:
    """Holds a mapping or list whose end event has not been read yet."""

    value: dict[str, object] | list[object]
    mark: TextMark
    anchor: str | None
    before: _Size
    places: Places = field(default_factory=dict[str | int, MemberPlace])
    key: object = _NO_KEY
    key_mark: TextMark = _START
    merges: list[tuple[object, TextMark]] = field(default_factory=list[tuple[object, TextMark]])

    @property
    def awaits_key(self) -> bool:
        return isinstance(self.value, dict) and self.key is _NO_KEY


@dataclass(frozen=True, slots=True)
class _Anchored:
    value: object
    size: _Size


class _Builder:
    """Builds values from parser events, with one method per kind of event."""

    def __init__(self) -> None:
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}
        self._size = _Size()
        self._places: dict[int, tuple[object, Places]] = {}
        self._faults: list[Fault] = []
        self._documents = 0
        self._root: object = None
        self._start = _START

    def document(self) -> Document:
        return Document(self._root, tuple(self._faults[:_FAULTS_MAX]), self._start, self._places)

    def take(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.MappingStartEvent():
                self._open({}, event)
            case yaml.SequenceStartEvent():
                self._open([], event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close()
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.DocumentStartEvent():
                self._begin(event)
            case _:
                pass

    def _begin(self, event: yaml.DocumentStartEvent) -> None:
        self._documents += 1
        if self._documents > 1:
            raise BadYaml(_mark(event.start_mark), "a second document begins here", "write one document per file")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        mark = _mark(event.start_mark)
        self._check_tag(event.tag, mark)
        self._count(_Size(1, len(event.value)), mark)
        top = self._stack[-1] if self._stack else None
        is_plain = event.implicit[0] and not event.style
        if is_plain and event.value == "<<" and top is not None and top.awaits_key:
            top.key, top.key_mark = _MERGE_KEY, mark
            return
        value = self._resolve(event.value, mark) if is_plain else event.value
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(value, _Size(1, len(event.value)))
        self._add(value, mark)

    def _resolve(self, text: str, mark: TextMark) -> object:
        if text in _WORDS:
            return _WORDS[text]
        return self._number(text, mark) if _is_number(text) else text

    def _number(self, text: str, mark: TextMark) -> object:
        digits = sum(character.isdigit() for character in text)
        if digits > DIGITS_MAX:
            self._fault(mark, f"a number of {digits} digits; at most {DIGITS_MAX} are kept", "quote it if it is text")
            return None
        if _INTEGER.fullmatch(text):
            return int(text)
        number = float(text)
        if number in (float("inf"), float("-inf")):
            self._fault(mark, f"{text} is beyond the largest number there is", "quote it if it is text")
            return None
        return number

    def _alias(self, event: yaml.AliasEvent) -> None:
        mark, name = _mark(event.start_mark), event.anchor or ""
        if any(frame.anchor == name for frame in self._stack):
            raise BadYaml(mark, f"alias *{name} stands inside what it stands for", "an alias cannot contain itself")
        anchored = self._anchors.get(name)
        if anchored is None:
            raise BadYaml(mark, f"alias *{name} has no anchor &{name} before it", "quote text that begins with `*`")
        self._count(anchored.size, mark)
        self._add(anchored.value, mark)

    def _open(self, value: dict[str, object] | list[object], event: yaml.CollectionStartEvent) -> None:
        mark = _mark(event.start_mark)
        self._check_tag(event.tag, mark)
        if len(self._stack) >= DEPTH_MAX:
            raise BadYaml(mark, f"nested deeper than {DEPTH_MAX} levels")
        before = _Size(self._size.nodes, self._size.characters)
        self._count(_Size(1, 0), mark)
        self._stack.append(_Open(value, mark, event.anchor, before))

    def _close(self) -> None:
        frame = self._stack.pop()
        for merged, mark in frame.merges:
            self._merge(frame, merged, mark)
        self._places[id(frame.value)] = (frame.value, frame.places)
        if frame.anchor:
            before = frame.before
            size = _Size(self._size.nodes - before.nodes, self._size.characters - before.characters)
            self._anchors[frame.anchor] = _Anchored(frame.value, size)
        self._add(frame.value, frame.mark)

    def _merge(self, frame: _Open, merged: object, mark: TextMark) -> None:
        """Copy those members of `<<` that the mapping does not define itself."""
        target = cast("dict[str, object]", frame.value)
        for source in cast("list[object]", merged) if isinstance(merged, list) else [merged]:
            if not isinstance(source, dict):
                self._fault(mark, "`<<` takes a mapping or a list of mappings", "merge an alias: `<<: *name`")
                continue
            members = cast("dict[str, object]", source)
            _, places = self._places[id(members)]
            for key in [key for key in members if key not in target]:
                target[key] = members[key]
                frame.places[key] = places[key]

    def _add(self, value: object, mark: TextMark) -> None:
        if not self._stack:
            self._root, self._start = value, mark
            return
        frame = self._stack[-1]
        if isinstance(frame.value, list):
            frame.places[len(frame.value)] = MemberPlace(mark, mark)
            frame.value.append(value)
        elif frame.key is _NO_KEY:
            self._take_key(frame, value, mark)
        else:
            self._take_value(frame, frame.value, value, mark)

    def _take_key(self, frame: _Open, key: object, mark: TextMark) -> None:
        if not isinstance(key, str):
            found = "a mapping or list" if isinstance(key, dict | list) else "a number, true, false or null"
            self._fault(mark, f"a key must be text, found {found}", "quote it")
            frame.key = _REFUSED_KEY
            return
        frame.key, frame.key_mark = key, mark
        if len(key) * _ESCAPE_LENGTH_MAX > _KEY_MAX and len(json.dumps(key)) > _KEY_MAX:
            raise BadYaml(mark, f"a key of {len(key)} characters; at most {_KEY_MAX} are accepted")
        if key in frame.places:
            first = frame.places[key].key
            self._fault(mark, f"key `{key[:60]}` is given twice", f"it is already given on line {first.line}")

    def _take_value(self, frame: _Open, target: dict[str, object], value: object, mark: TextMark) -> None:
        key, frame.key = frame.key, _NO_KEY
        if key is _MERGE_KEY:
            frame.merges.append((value, mark))
        elif isinstance(key, str):
            target[key] = value
            frame.places[key] = MemberPlace(frame.key_mark, mark)

    def _check_tag(self, tag: str | None, mark: TextMark) -> None:
        if tag is not None:
            self._fault(mark, f"tag {tag[:60]} is not supported", "remove it; plain YAML values are enough here")

    def _count(self, more: _Size, mark: TextMark) -> None:
        self._size.nodes += more.nodes
        self._size.characters += more.characters
        if self._size.nodes > NODES_MAX:
            raise BadYaml(mark, f"more than {NODES_MAX:,} values, aliases written out")
        if self._size.characters > CHARACTERS_MAX:
            raise BadYaml(mark, f"more than {CHARACTERS_MAX:,} characters, aliases written out")

    def _fault(self, mark: TextMark, message: str, hint: str = "") -> None:
        if len(self._faults) < _FAULTS_MAX:
            self._faults.append(Fault(mark, message, hint))
