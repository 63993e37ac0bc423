"""The themes: the style of each tone, and the rendering of pieces of text.

Colour is never the only channel: every state has a glyph and a word too. Metrics are shades of one
cool hue; warm colours are for alerts alone, and red only for "act now": a busy GPU is not red.
`tests/tui/test_theme.py` computes the contrast of every tone (4.5:1 for text) and the distance of
the states as colour-blind people see them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tui.kit.painted import Painted

Piece = tuple[str, str]
"""A run of text and its tone."""
Line = Sequence[Piece]

STATES = ("ok", "stale", "warn", "crit", "down")
STEPS = 8
"""Shades of the ramp."""


@dataclass(frozen=True)
class Theme:
    """A set of colours; an empty one is the terminal's own."""

    name: str
    dark: bool
    background: str
    panel: str
    """Behind the footer, dialogs and the row under an idle cursor."""
    selection: str
    """Behind the row under the cursor."""
    tones: Mapping[str, str]
    ramp: tuple[str, ...]
    """From nothing to full; empty where shades are glyphs."""

    @property
    def shaded(self) -> bool:
        """Whether metrics are shades of colour; else of ink: ` .:-=+*#`."""
        return bool(self.ramp)


_ICE = ("#0e1a26", "#122c42", "#17405f", "#1d587c", "#2a7296", "#4a8fb0", "#7ab2ca", "#b8d8e4")

DARK = Theme(
    "dark", True, "#121212", "#1c232b", "#22384a",
    {
        "": "#d6dbe0", "strong": "bold #f5f5f5", "dim": "#98a2ae", "head": "bold #98a2ae",
        "ok": "#98a2ae", "warn": "#f2b705", "crit": "bold #ff7357", "down": "bold #f5f5f5",
        "stale": "#5fb0ea", "good": "#00b98e", "bar": "#4a8fb0", "bar_warn": "#f2b705",
        "bar_crit": "#ff5c3d", "faint": "#4a525b", "frame": "#2c4a66", "key": "bold #6db9ee",
        "warn_chip": "bold #121212 on #f2b705", "crit_chip": "bold #121212 on #ff5c3d",
        "stale_chip": "#121212 on #4ea6e6", "down_chip": "bold #121212 on #f5f5f5",
        "chip": "bold #121212 on #f2b705", "band": "bold #ffffff on #b02a00",
        "here": "bold #000000 on #ffffff",
    },
    _ICE,
)  # fmt: skip
LIGHT = Theme(
    "light", False, "#ffffff", "#e8edf2", "#d3e3f0",
    {
        "": "#24292f", "strong": "bold #000000", "dim": "#525b65", "head": "bold #525b65",
        "ok": "#525b65", "warn": "#000000 on #ffc233", "crit": "bold #ffffff on #b02a00",
        "down": "bold #202020", "stale": "#00598c", "good": "#00664a", "bar": "#2a7296",
        "bar_warn": "#9a6a00", "bar_crit": "#b02a00", "faint": "#a8b0b8", "frame": "#9db8cf",
        "key": "bold #00598c",
        "warn_chip": "bold #000000 on #ffc233", "crit_chip": "bold #ffffff on #b02a00",
        "stale_chip": "#ffffff on #00598c", "down_chip": "bold #ffffff on #202020",
        "chip": "bold #000000 on #ffc233", "band": "bold #ffffff on #b02a00",
        "here": "bold #ffffff on #000000",
    },
    tuple(reversed(_ICE)),
)  # fmt: skip
CONTRAST = Theme(
    "contrast", True, "#000000", "#101010", "#00405f",
    {
        "": "#ffffff", "strong": "bold #ffffff", "dim": "#c8c8c8", "head": "bold #c8c8c8",
        "ok": "#c8c8c8", "warn": "bold #ffd000", "crit": "bold #000000 on #ff6347",
        "down": "bold #ffffff", "stale": "#5ccbff", "good": "#00e0a0", "bar": "#5ccbff",
        "bar_warn": "#ffd000", "bar_crit": "#ff6347", "faint": "#707070", "frame": "#808080",
        "key": "bold #5ccbff",
        "warn_chip": "bold #000000 on #ffd000", "crit_chip": "bold #000000 on #ff6347",
        "stale_chip": "#000000 on #5ccbff", "down_chip": "bold #000000 on #ffffff",
        "chip": "bold #000000 on #ffd000", "band": "bold #000000 on #ff6347",
        "here": "bold #000000 on #ffffff",
    },
    ("#000000", *_ICE[1:7], "#ffffff"),
)  # fmt: skip
MONO = Theme(
    "mono", True, "", "", "",
    {
        "": "", "strong": "bold", "dim": "", "head": "bold underline", "ok": "", "warn": "bold",
        "crit": "bold reverse", "down": "bold", "stale": "", "good": "", "bar": "", "bar_warn": "",
        "bar_crit": "bold", "faint": "dim", "frame": "dim", "key": "bold",
        "warn_chip": "bold", "crit_chip": "bold reverse", "stale_chip": "", "down_chip": "bold",
        "chip": "bold reverse", "band": "bold reverse", "here": "bold reverse",
    },
    (),
)  # fmt: skip
SIXTEEN = Theme(
    "sixteen", True, "", "", "",
    {
        **MONO.tones,
        "warn": "bold yellow", "crit": "bold red", "stale": "cyan", "good": "green",
        "bar_warn": "yellow", "bar_crit": "red", "key": "bold cyan",
        "warn_chip": "black on yellow", "crit_chip": "bold white on red",
        "stale_chip": "black on cyan", "down_chip": "bold reverse", "band": "bold white on red",
        "chip": "black on yellow",
    },
    (),
)  # fmt: skip
THEMES = {theme.name: theme for theme in (DARK, LIGHT, CONTRAST, MONO, SIXTEEN)}

INK = " .:-=+*#"
"""The ramp without colour."""
_ASCII = {
    **dict(
        zip(
            "\u203a·▲\u00d7▒●○—\u2013…°±²→←▼▶◀✓µ⏎│┤├─┄╭╮╰╯┌┐└┘━═■□↑↓",
            ">-#x~*o--.'~2><v><v+u^||+-.....++++==#.^v",
            strict=False,
        )
    ),
    **dict(zip("▏▎▍▌▋▊▉█▀▄▁▂▃▅▆▇░▓", ' .:-=+*#"_.._-=+:%', strict=False)),
    "┊": ":",
    "␣": "_",
}
_TABLE = {
    **{ord(sign): ascii_ for sign, ascii_ in _ASCII.items()},
    **{0x2800 + dots: " .:*#"[min(4, dots.bit_count())] for dots in range(256)},
}
"""ASCII replacements, one sign for one sign, so that columns stay aligned."""


class Tones:
    """A theme as styles: all text becomes strips here."""

    def __init__(self, theme: Theme, *, ascii_only: bool = False) -> None:
        self.theme, self.ascii_only = theme, ascii_only
        self._styles: dict[str, Style] = {}
        self._made: dict[tuple[str, str, bool], Style] = {}
        self._bases: dict[str, Style] = {"": self._base(theme.background)}
        if theme.background:
            self._bases |= {
                "cursor": Style(bgcolor=theme.selection),
                "cursor_idle": Style(bgcolor=theme.panel),
                "panel": Style(bgcolor=theme.panel),
            }
        else:
            self._bases |= {"cursor": Style(reverse=True), "cursor_idle": Style(underline=True), "panel": Style.null()}

    @staticmethod
    def _base(background: str) -> Style:
        return Style(bgcolor=background) if background else Style.null()

    @cached_property
    def base(self) -> Style:
        """The style behind all text."""
        return self._bases[""]

    def __getitem__(self, tone: str) -> Style:
        """Return the style of a tone. `a/b` is the colour of `a` over that of `b`, for a half-block."""
        found = self._styles.get(tone)
        if found is None:
            found = self._styles[tone] = self._make(tone)
        return found

    def _make(self, tone: str) -> Style:
        over, _, under = tone.partition("/")
        if under:
            return Style(color=self[over].color, bgcolor=self[under].color or None)
        if tone == "none":
            return Style(color=self.theme.background or None)
        if tone.startswith("r") and tone[1:].isdecimal():
            ramp = self.theme.ramp
            return Style(color=ramp[int(tone[1:])]) if ramp else Style.null()
        if tone.startswith("on_r"):
            shade = self.theme.ramp[int(tone[4:])] if self.theme.ramp else ""
            return Style(bgcolor=shade, color=_legible(shade)) if shade else Style.null()
        return Style.parse(self.theme.tones[tone])

    def under(self, name: str) -> Style:
        """Return the style behind a line: '', `cursor`, `cursor_idle` or `panel`."""
        return self.base + self._bases[name]

    def as_text(self, text: str) -> str:
        """Return text with the signs that this terminal can show."""
        return text.translate(_TABLE) if self.ascii_only else text

    def strip(self, line: Line, width: int, under: str = "", *, faded: bool = False) -> Strip:
        """Render a line of exactly `width` cells. `faded`: the data is outdated."""
        style, as_text = self._painted, self.as_text
        segments = [Segment(as_text(text), style(under, name, faded)) for text, name in line]
        strip = Strip(segments)
        if strip.cell_length > width > 0 and strip.crop(width).text.strip():  # show that it is cut
            more = Segment(as_text("…"), style(under, line[-1][1], faded))
            strip = Strip([*strip.crop(0, width - 1), more])
        if strip.cell_length != width:
            strip = strip.extend_cell_length(width, self._behind(under, faded)).crop(0, width)
        return Painted(strip, width, final=bool(self.theme.background) and not faded)

    def _behind(self, under: str, faded: bool) -> Style:
        return self.under(under) + Style(dim=True) if faded else self.under(under)

    def _painted(self, under: str, tone: str, faded: bool) -> Style:
        """Return the style of a tone over the one behind it; cached, as a map needs it 3,000 times a tick."""
        found = self._made.get((under, tone, faded))
        if found is None:
            found = self._behind(under, faded) + self[tone]
            self._made[under, tone, faded] = found = found + self["dim"] if faded else found
        return found


def _legible(shade: str) -> str:
    """Return black or white, whichever is more legible on a shade."""
    return "#ffffff" if luminance(shade) < 0.18 else "#000000"


def luminance(colour: str) -> float:
    """Return the relative luminance of `#rrggbb`, 0 to 1 (WCAG 2)."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
