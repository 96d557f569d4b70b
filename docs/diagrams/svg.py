"""Write SVG text: elements, and a style that is legible on light and dark pages."""

from collections.abc import Iterable, Mapping
from typing import Final
from xml.sax.saxutils import escape, quoteattr

FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

# A picture paints its own background, so it is legible even where the page is dark and the system is not.
LIGHT: Final = {"paper": "#ffffff", "frame": "#d8dee4", "ink": "#1f2328", "muted": "#59636e", "stripe": "#f6f8fa"}
DARK: Final = {"paper": "#0d1117", "frame": "#3d444d", "ink": "#f0f6fc", "muted": "#9198a1", "stripe": "#151b23"}


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def element(tag: str, text: str | None = None, **attributes: object) -> str:
    """Return an element. `class_` stands for class, and an underscore for a hyphen."""
    pairs = ((name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items())
    words = [tag, *(f"{name}={quoteattr(_text(value))}" for name, value in pairs)]
    return f"<{' '.join(words)}/>" if text is None else f"<{' '.join(words)}>{escape(text)}</{tag}>"


def _text(value: object) -> str:
    return number(value) if isinstance(value, int | float) else str(value)


def picture(
    size: tuple[float, float], title: str, body: Iterable[str], colours: Mapping[str, tuple[str, str]], rules: str
) -> str:
    """Return a whole SVG file; `colours` are further names with a light and a dark value, for use in `rules`."""
    light = LIGHT | {name: pair[0] for name, pair in colours.items()}
    dark = DARK | {name: pair[1] for name, pair in colours.items()}
    (width, height), (across, down) = size, map(number, size)
    head = f'viewBox="0 0 {across} {down}" width="{across}" height="{down}" role="img" font-family={quoteattr(FONT)}'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {head}>',
            f"<title>{escape(title)}</title>",
            "<style>",
            _rules(rules, light),
            "@media (prefers-color-scheme: dark) {",
            _rules(rules, dark),
            "}",
            "</style>",
            element("rect", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=10, class_="paper"),
            *body,
            "</svg>",
            "",
        ]
    )


def _rules(rules: str, colours: Mapping[str, str]) -> str:
    """Fill in colours by name: written out, because not every viewer of SVG knows CSS variables."""
    text = ".paper { fill: $paper; stroke: $frame } .ink { fill: $ink } .muted { fill: $muted }\n" + rules.strip()
    for name in sorted(colours, key=len, reverse=True):
        text = text.replace(f"${name}", colours[name])
    return text
