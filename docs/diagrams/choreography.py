"""The picture of stages that hand over through objects, and of what Interlock sees and starts."""

from typing import Final

from docs.diagrams.svg import element, number, picture

STAGE: Final = (("#ddf0ff", "#10304f"), ("#0969da", "#58a6ff"))
OBJECTS: Final = (("#d8f5f2", "#0d3936"), ("#0a7c75", "#39c5bb"))
ENDS: Final = (("#f6f8fa", "#151b23"), ("#59636e", "#9198a1"))
LEDGER: Final = (("#fff3c4", "#3d3214"), ("#9a6700", "#d4a72c"))
# Title, text below it, and the kind of the box, from left to right.
BOXES: Final = (
    ("API", "bills", "end"),
    ("poll", "every hour", "stage"),
    ("raw/", "dt=D/bills.csv", "objects"),
    ("classify", "asks a model", "stage"),
    ("processed/", "parts, _SUCCESS", "objects"),
    ("embed", "upserts by key", "stage"),
    ("graph", "bills, chunks", "end"),
)
WIDTH: Final = 114.0
HEIGHT: Final = 62.0
GAP: Final = 22.0
MARGIN: Final = 16.0
TOP: Final = 20.0
LEDGER_TOP: Final = 112.0
BAR_TOP: Final = 206.0

RULES: Final = """
.box { stroke-width: 1.4 } .title { font-size: 16px; font-weight: 650 } .text { font-size: 13px }
.arrow { fill: none; stroke: $muted; stroke-width: 1.8 } .tip { fill: $muted }
.sees { fill: none; stroke: $muted; stroke-width: 1.5; stroke-dasharray: 5 4 }
.bar { fill: $stripe; stroke: $frame; stroke-width: 1.2 }
.stage { fill: $stagefill; stroke: $stageline } .objects { fill: $objectsfill; stroke: $objectsline }
.end { fill: $endfill; stroke: $endline } .ledger { fill: $ledgerfill; stroke: $ledgerline }
"""


def draw_choreography() -> str:
    right = MARGIN + len(BOXES) * WIDTH + (len(BOXES) - 1) * GAP
    body = [line for index in range(len(BOXES)) for line in _box(index)]
    for index in range(len(BOXES) - 1):
        body += _right(_left(index) + WIDTH, _left(index + 1))
    for index, (_, _, kind) in enumerate(BOXES):
        body += _stage(index) if kind == "stage" else _seen(index) if kind == "objects" else []
    body += _bar(right)
    pairs = {"stage": STAGE, "objects": OBJECTS, "end": ENDS, "ledger": LEDGER}
    colours = {f"{name}fill": pair[0] for name, pair in pairs.items()}
    colours |= {f"{name}line": pair[1] for name, pair in pairs.items()}
    title = "Three stages hand over through objects; Interlock sees when objects are complete and starts the next stage"
    return picture((right + MARGIN, BAR_TOP + 76), title, body, colours, RULES)


def _left(index: int) -> float:
    return MARGIN + index * (WIDTH + GAP)


def _middle(index: int) -> float:
    return _left(index) + WIDTH / 2


def _text(text: str, x: float, y: float, kind: str) -> str:
    return element("text", text, x=x, y=y, text_anchor="middle", class_=kind)


def _box(index: int) -> list[str]:
    title, text, kind = BOXES[index]
    return [
        element("rect", x=_left(index), y=TOP, width=WIDTH, height=HEIGHT, rx=9, class_=f"box {kind}"),
        _text(title, _middle(index), TOP + 26, "ink title"),
        _text(text, _middle(index), TOP + 47, "ink text"),
    ]


def _right(start: float, end: float) -> list[str]:
    y = TOP + HEIGHT / 2
    return [
        element("path", d=f"M{number(start + 3)},{number(y)} H{number(end - 9)}", class_="arrow"),
        element("path", d=f"M{number(end - 10)},{number(y - 5)} l8,5 l-8,5 z", class_="tip"),
    ]


def _stage(index: int) -> list[str]:
    """Draw the ledger of a stage, and the start by Interlock beside it."""
    x, start = _middle(index), _left(index) + 14
    return [
        element("rect", x=x - 38, y=LEDGER_TOP, width=90, height=30, rx=7, class_="box ledger"),
        _text("ledger", x + 7, LEDGER_TOP + 20, "ink text"),
        element("path", d=f"M{number(x)},{number(TOP + HEIGHT + 3)} V{number(LEDGER_TOP - 3)}", class_="sees"),
        element("path", d=f"M{number(start)},{number(BAR_TOP - 3)} V{number(TOP + HEIGHT + 12)}", class_="arrow"),
        element("path", d=f"M{number(start - 5)},{number(TOP + HEIGHT + 12)} h10 l-5,-8 z", class_="tip"),
        _text("start, retry", x + 7, BAR_TOP - 30, "muted text"),
    ]


def _seen(index: int) -> list[str]:
    """Draw that the inbox sees the objects, and what they become."""
    x, bottom = _middle(index), TOP + HEIGHT
    return [
        element("path", d=f"M{number(x)},{number(bottom + 3)} V{number(BAR_TOP - 12)}", class_="sees"),
        element("path", d=f"M{number(x - 5)},{number(BAR_TOP - 12)} h10 l-5,8 z", class_="tip"),
    ]


def _bar(right: float) -> list[str]:
    lines = (
        "Interlock: are the objects of a day complete? one run per day, deadlines, late data, summaries, alerts",
        "after each completed run, the objects that it used move to done/",
    )
    rect = element("rect", x=MARGIN, y=BAR_TOP, width=right - MARGIN, height=60, rx=9, class_="bar")
    middle = (MARGIN + right) / 2
    return [rect] + [_text(line, middle, BAR_TOP + 25 + 21 * place, "ink text") for place, line in enumerate(lines)]
