"""The picture of the flow: sensor, rule, run, job, deadline, alert, and what leads back or stays away."""

from typing import Final

from docs.diagrams.svg import element, number, picture

# Title, two lines of text, and the colours of the card: light and dark, fill and line.
CARDS: Final = (
    ("Sensor", ("a producer says", "what it wrote"), ("#d8f5f2", "#0d3936"), ("#0a7c75", "#39c5bb")),
    ("Rule", ("rows ≥ 1000,", "fresh within 24 h"), ("#fff3c4", "#3d3214"), ("#9a6700", "#d4a72c")),
    ("Run", ("one per pipeline,", "schedule, period"), ("#ddf0ff", "#10304f"), ("#0969da", "#58a6ff")),
    ("Job", ("Glue, EMR, HTTP", "or a command"), ("#fbefff", "#341d4f"), ("#8250df", "#bc8cff")),
    ("Deadline", ("due at 06:00,", "warned before"), ("#ffeff7", "#42122f"), ("#bf3989", "#f778ba")),
    ("Alert", ("what happened,", "why, what to do"), ("#fff1e5", "#44230a"), ("#bc4c00", "#f0883e")),
)
WIDTH: Final = 130.0
HEIGHT: Final = 84.0
GAP: Final = 20.0
MARGIN: Final = 16.0
TOP: Final = 20.0

RULES: Final = """
.card { stroke-width: 1.4 } .title { font-size: 17px; font-weight: 650 } .text { font-size: 13.5px }
.arrow { fill: none; stroke: $muted; stroke-width: 1.8 } .tip { fill: $muted }
.back { fill: none; stroke: $muted; stroke-width: 1.5; stroke-dasharray: 5 4 }
.bar { fill: $stripe; stroke: $frame; stroke-width: 1.2 }
"""


def draw_flow() -> str:
    right = MARGIN + len(CARDS) * WIDTH + (len(CARDS) - 1) * GAP
    body = [line for index in range(len(CARDS)) for line in _card(index)]
    for index in range(len(CARDS) - 1):
        body += _arrow(_left(index) + WIDTH, _left(index + 1))
    body += _back(1, 0, "not met: wait, say why")
    body += _back(3, 2, "failed: retry · late data: rerun")
    body += _watchdog()
    colours = {f"fill{index}": card[2] for index, card in enumerate(CARDS)}
    colours |= {f"line{index}": card[3] for index, card in enumerate(CARDS)}
    rules = RULES + "\n".join(
        f".c{index} {{ fill: $fill{index}; stroke: $line{index} }}" for index in range(len(CARDS))
    )
    title = "A sensor meets a rule, which starts a run and its job; the deadline is watched, and people are alerted"
    return picture((right + MARGIN, 248), title, body, colours, rules)


def _left(index: int) -> float:
    return MARGIN + index * (WIDTH + GAP)


def _card(index: int) -> list[str]:
    title, lines, _, _ = CARDS[index]
    x, middle = _left(index), _left(index) + WIDTH / 2
    rect = element("rect", x=x, y=TOP, width=WIDTH, height=HEIGHT, rx=9, class_=f"card c{index}")
    return [rect, _text(title, middle, TOP + 28, "ink title")] + [
        _text(line, middle, TOP + 50 + 17 * place, "ink text") for place, line in enumerate(lines)
    ]


def _text(text: str, x: float, y: float, kind: str) -> str:
    return element("text", text, x=x, y=y, text_anchor="middle", class_=kind)


def _arrow(start: float, end: float) -> list[str]:
    y = TOP + HEIGHT / 2
    return [
        element("path", d=f"M{number(start + 3)},{number(y)} H{number(end - 9)}", class_="arrow"),
        element("path", d=f"M{number(end - 10)},{number(y - 5)} l8,5 l-8,5 z", class_="tip"),
    ]


def _back(source: int, target: int, label: str) -> list[str]:
    """Draw a dashed way back below two cards, with its label."""
    bottom = TOP + HEIGHT
    start, end = _left(source) + WIDTH / 2, _left(target) + WIDTH / 2
    dip = bottom + 44
    path = (
        f"M{number(start)},{number(bottom + 3)} C{number(start)},{dip} {number(end)},{dip} {number(end)},{bottom + 11}"
    )
    return [
        element("path", d=path, class_="back"),
        element("path", d=f"M{number(end - 5)},{bottom + 11} h10 l-5,-8 z", class_="tip"),
        _text(label, (start + end) / 2, bottom + 56, "muted text"),
    ]


def _watchdog() -> list[str]:
    """Draw the watchdog below everything that may fail to happen; it alerts too."""
    bottom = TOP + HEIGHT
    top, left, right = bottom + 76, _left(0), _left(4) + WIDTH
    middle, alert = top + 22, _left(5) + WIDTH / 2
    way = f"M{number(right + 3)},{middle} H{number(alert - 10)} q10,0 10,-10 V{bottom + 12}"
    text = "Watchdog: reports once what did not happen (no data, no start, no finish)"
    return [
        element("rect", x=left, y=top, width=right - left, height=44, rx=9, class_="bar"),
        _text(text, (left + right) / 2, top + 27, "ink text"),
        element("path", d=way, class_="arrow"),
        element("path", d=f"M{number(alert - 5)},{bottom + 12} h10 l-5,-8 z", class_="tip"),
    ]
