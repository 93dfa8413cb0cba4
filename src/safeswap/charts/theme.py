"""Colours and text formats that all charts share, light and dark."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from safeswap.model.text import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Makes matplotlib figures byte-identical on every run and machine.
STYLE: Any = {
    "svg.hashsalt": "safeswap",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib
    "text.usetex": False,
    "text.parse_math": False,  # a dollar sign in a name is literal
}


def svg_of(figure: Figure, *, text_as_paths: bool = True) -> str:
    """Return SVG without a date. Text as paths looks the same everywhere; as text it can be searched and copied."""
    from matplotlib import rc_context

    out = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({**STYLE, "svg.fonttype": "path" if text_as_paths else "none"}):
        figure.savefig(out, format="svg", metadata=nothing)
    return out.getvalue()


def png_of(figure: Figure, *, dpi: int = 200) -> bytes:
    """Return PNG without metadata on the software."""
    from matplotlib import rc_context

    out = io.BytesIO()
    with rc_context(STYLE):
        figure.savefig(out, format="png", dpi=dpi, metadata={"Software": None})
    return out.getvalue()


LONGEST_LABEL = 80
"""The longest label in a chart; longer names are cut."""


@dataclass(frozen=True, kw_only=True)
class Theme:
    """One set of colours; ``rates`` runs from the lowest rate to the highest and is interpolated between."""

    ground: str
    panel: str
    ink: str
    muted: str
    line: str
    accent: str
    loss: str  # heat: association lost, uncertainty added
    gain: str  # heat: the other direction
    other: str  # candidates that have no rate
    rates: tuple[str, ...]

    def rate_colours(self, number: int) -> list[str]:
        """Return ``number`` colours that differ in lightness as well as hue.

        >>> LIGHT.rate_colours(3) == list(LIGHT.rates)
        True
        """
        if number <= 1:
            return [self.rates[1]] * number
        steps = [i * (len(self.rates) - 1) / (number - 1) for i in range(number)]
        return [_interpolate(self.rates, step) for step in steps]


LIGHT = Theme(
    ground="#ffffff",
    panel="#f5f7f9",
    ink="#1c2733",
    muted="#52606d",
    line="#d5dce3",
    accent="#1f6f9c",
    loss="#1f6f9c",
    gain="#b3541e",
    other="#7b8794",
    rates=("#6a3d9a", "#12908e", "#d9820a"),
)
DARK = Theme(
    ground="#14191f",
    panel="#1d242c",
    ink="#e6ebf0",
    muted="#a3afbb",
    line="#36414c",
    accent="#6cb8e0",
    loss="#3f8fbf",
    gain="#d4743f",
    other="#8d99a5",
    rates=("#b79cf0", "#45c8bd", "#f2b84b"),
)


def _interpolate(colours: tuple[str, ...], step: float) -> str:
    low, high = list(pairwise(colours))[min(int(step), len(colours) - 2)]
    share = step - min(int(step), len(colours) - 2)
    parts = [(int(low[i : i + 2], 16), int(high[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in parts)


def css_variables() -> str:
    """Return the colours as CSS variables, dark if the reader's system is.

    >>> "--ink: #1c2733;" in css_variables()
    True
    """
    return (
        f":root {{ color-scheme: light dark; {css_declarations(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {css_declarations(DARK)} }} }}\n"
        f"@media print {{ :root {{ {css_declarations(LIGHT)} }} }}\n"
    )


def css_declarations(theme: Theme) -> str:
    """Return the colours of one theme as CSS declarations.

    >>> css_declarations(LIGHT).startswith("--ground: #ffffff;")
    True
    """
    return " ".join(f"--{name}: {value};" for name, value in asdict(theme).items() if isinstance(value, str))


def shorten(text: str, most: int = LONGEST_LABEL) -> str:
    """Shorten to one line of at most ``most`` characters, ending in an ellipsis if cut.

    >>> shorten("a very long name", 8)
    'a very …'
    """
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def measure_title(measure: str) -> str:
    """Return the title of a measure, with its parameters if it has any.

    >>> measure_title("n_rule:n=5")
    'n-rule (n=5)'
    >>> measure_title('coefficients:{"models": [{"formula": "x ~ y"}]}')
    'change in coefficients, in standard errors (x ~ y)'
    """
    from safeswap import registry

    _, _, parameters = measure.partition(":")
    title = registry.measure(measure).title
    return shorten(f"{title} ({_tell_parameters(parameters)})" if parameters else title)


def _tell_parameters(text: str) -> str:
    """Return parameters as a reader understands them: models by their formulas, lists of indicators by their number."""
    if not text.startswith("{"):
        return text
    told = []
    for name, value in json.loads(text).items():
        if name == "lines":
            told.append(plural(len(value), "indicator"))
        elif name == "models":
            told += [str(model["formula"]) for model in value]
        else:
            told.append(f"{name}={'+'.join(map(str, value)) if isinstance(value, list) else value}")
    return ", ".join(told)


def axis_title(measure: str) -> str:
    """Return the title of a measure on an axis of a map; a signed one is called a magnitude.

    >>> axis_title("entropy_change")
    'change in entropy, magnitude'
    """
    from safeswap import registry
    from safeswap.measures.base import is_signed

    title = measure_title(measure)
    return f"{title}, magnitude" if is_signed(registry.measure(measure)) else title


def number_text(value: float | None) -> str:
    """Format a number with four significant digits.

    >>> number_text(0.0123456), number_text(0.0), number_text(3.2e-06), number_text(None)
    ('0.01235', '0', '3.2e-06', '–')
    """
    if value is None or value != value:  # noqa: PLR0124  (not a number)
        return "–"
    return f"{value:.4g}"
