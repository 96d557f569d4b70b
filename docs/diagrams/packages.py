"""The picture of the packages: one row for each layer, one arrow for each import that does not follow from others."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final

from docs.diagrams.layers import Edge, Placement, Spot, place
from docs.diagrams.svg import element, number, picture

# The area of a package is that of the longest name here that begins its own name. Light and dark: fill, then line.
AREAS: Final[Mapping[str, tuple[str, tuple[str, str], tuple[str, str]]]] = {
    "core": ("decides, without I/O", ("#fff3c4", "#3d3214"), ("#9a6700", "#d4a72c")),
    "engine": ("commits and acts", ("#ddf0ff", "#10304f"), ("#0969da", "#58a6ff")),
    "store": ("keeps rows", ("#dafbe1", "#12351d"), ("#1a7f37", "#3fb950")),
    "jobs": ("calls job targets", ("#fbefff", "#341d4f"), ("#8250df", "#bc8cff")),
    "consumers": ("reads and delivers", ("#d8f5f2", "#0d3936"), ("#0a7c75", "#39c5bb")),
    "scheduler": ("turns time into facts", ("#ffeff7", "#42122f"), ("#bf3989", "#f778ba")),
    "operations": ("answers people", ("#fff1e5", "#44230a"), ("#bc4c00", "#f0883e")),
    "base": ("composes and supports", ("#eff2f5", "#262c36"), ("#59636e", "#9198a1")),
}
AREA_OF: Final = {
    "worker": "base",
    "worker.core": "core",
    "worker.engine": "engine",
    "worker.config": "engine",
    "worker.membership": "engine",
    "worker.store": "store",
    "worker.jobs": "jobs",
    "worker.targets": "jobs",
    "worker.net": "jobs",
    "worker.operations": "operations",
    "consumers": "consumers",
    "scheduler": "scheduler",
}

BOX_HEIGHT: Final = 38.0
ROW_HEIGHT: Final = 78.0
MARGIN: Final = 28.0
HEAD: Final = 124.0
GAP: Final = 18.0
LEGEND_COLUMNS: Final = 4
LEGEND_WIDTH: Final = 172.0

RULES: Final = """
.stripe { fill: $stripe }
.line { fill: none; stroke-width: 1.4; stroke-opacity: 0.75 }
.box { stroke-width: 1.2 }
.title { font-size: 18px; font-weight: 600 } .note { font-size: 12px }
.parent { font-size: 10px } .name { font-size: 13px; font-weight: 600 }
"""


def draw_packages(layers: Sequence[Sequence[str]], imports: Iterable[Edge]) -> str:
    """Return the picture of packages in `layers`, given from the ground up, and of what imports what."""
    rows = [sorted(layer, key=lambda name: (list(AREAS).index(_area(name)), name)) for layer in reversed(layers)]
    edges = direct(imports)
    placed = place(rows, edges, lambda name: _width(name) + GAP)
    right = max(x + (0 if spot.is_waypoint else _width(spot.name) / 2) for spot, x in placed.x.items())
    width, height = right + 2 * MARGIN, HEAD + len(rows) * ROW_HEIGHT + 4
    body = [
        element("text", "Packages and their imports", x=MARGIN, y=36, class_="ink title"),
        *_notes(),
        *_legend(),
        *_stripes(len(rows), width),
        *_arrows(placed),
        *(line for spot in placed.x if not spot.is_waypoint for line in _box(spot.name, *_centre(placed, spot))),
    ]
    return picture(
        (width, height), "Packages and their imports, layer by layer", body, _colours(), RULES + _area_rules()
    )


def direct(imports: Iterable[Edge]) -> list[Edge]:
    """Leave out each import that follows from others: of a package that something imported imports anyway."""
    below: defaultdict[str, set[str]] = defaultdict(set)
    for source, target in imports:
        below[source].add(target)

    @cache
    def reached(name: str) -> frozenset[str]:
        return frozenset(below[name]).union(*(reached(each) for each in sorted(below[name])))

    pairs = [(source, target) for source in sorted(below) for target in sorted(below[source])]
    return [(source, to) for source, to in pairs if not any(to in reached(each) for each in below[source] - {to})]


def _area(package: str) -> str:
    homes = [name for name in AREA_OF if package == name or package.startswith(f"{name}.")]
    return AREA_OF[max(homes, key=len)]


def _width(package: str) -> float:
    parent, _, name = package.rpartition(".")
    return max(62.0, 8.6 * len(name) + 22, 5.6 * len(parent) + 20)


def _centre(placed: Placement, spot: Spot) -> tuple[float, float]:
    return placed.x[spot] + MARGIN, HEAD + spot.row * ROW_HEIGHT + ROW_HEIGHT / 2


def _box(package: str, x: float, y: float) -> list[str]:
    parent, _, name = package.rpartition(".")
    width, top = _width(package), y - BOX_HEIGHT / 2
    rect = element(
        "rect", x=x - width / 2, y=top, width=width, height=BOX_HEIGHT, rx=7, class_=f"box {_area(package)}-box"
    )
    label = {"x": x, "text_anchor": "middle"}
    if not parent:
        return [rect, element("text", name, y=y + 4.5, class_="ink name", **label)]
    above = element("text", parent, y=y - 5, class_="muted parent", **label)
    return [rect, above, element("text", name, y=y + 11, class_="ink name", **label)]


def _arrows(placed: Placement) -> list[str]:
    """Draw lines to one package in the colour of its area: where they meet, they go on as one."""
    drawn: list[str] = []
    for upper, lower in placed.lines:
        (x1, y1), (x2, y2) = _centre(placed, upper), _centre(placed, lower)
        y1 += BOX_HEIGHT / 2
        y2 -= BOX_HEIGHT / 2 + (0 if lower.is_waypoint else 5)
        middle = (y1 + y2) / 2
        points = [(x1, y1), (x1, middle), (x2, middle), (x2, y2)]
        path = "M{} C{} {} {}".format(*(f"{number(x)},{number(y)}" for x, y in points))
        if lower.is_waypoint:
            path += f" V{number(y2 + BOX_HEIGHT)}"
        drawn.append(element("path", d=path, class_=f"line {_area(lower.name)}-line"))
        if not lower.is_waypoint:
            tip = f"M{number(x2 - 4.5)},{number(y2 - 3)} h9 l-4.5,8 z"
            drawn.append(element("path", d=tip, class_=f"{_area(lower.name)}-tip"))
    return drawn


def _stripes(rows: int, width: float) -> list[str]:
    tops = [HEAD + row * ROW_HEIGHT for row in range(0, rows, 2)]
    return [element("rect", x=1, y=top, width=width - 2, height=ROW_HEIGHT, class_="stripe") for top in tops]


def _notes() -> list[str]:
    text = "An arrow points to what a package imports. Imports that follow from others are left out."
    return [element("text", text, x=MARGIN, y=58, class_="muted note")]


def _legend() -> list[str]:
    drawn: list[str] = []
    for index, (area, (text, _, _)) in enumerate(AREAS.items()):
        x, y = MARGIN + index % LEGEND_COLUMNS * LEGEND_WIDTH, 74 + index // LEGEND_COLUMNS * 20
        drawn.append(element("rect", x=x, y=y, width=12, height=12, rx=3, class_=f"box {area}-box"))
        drawn.append(element("text", text, x=x + 18, y=y + 10, class_="muted note"))
    return drawn


def _colours() -> dict[str, tuple[str, str]]:
    fills: dict[str, tuple[str, str]] = {f"{area}-fill": fill for area, (_, fill, _) in AREAS.items()}
    return fills | {f"{area}-stroke": stroke for area, (_, _, stroke) in AREAS.items()}


def _area_rules() -> str:
    boxes = [f".{area}-box {{ fill: ${area}-fill; stroke: ${area}-stroke }}" for area in AREAS]
    lines = [f".{area}-line {{ stroke: ${area}-stroke }} .{area}-tip {{ fill: ${area}-stroke }}" for area in AREAS]
    return "\n".join([*boxes, *lines])
