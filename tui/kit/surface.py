"""A widget that paints the lines of a pure function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tui.kit.painted import painted
from tui.kit.theme import Line, Tones

WIDE = 120
"""Columns from which on the header has three lines, and lists show the detail beside them."""
Drawing = Callable[[int, int], Sequence[Line]]
"""A function of width and height that returns lines, at most as many as the height."""


def nothing(_width: int, _height: int) -> Sequence[Line]:
    """Draw nothing."""
    return ()


class Surface(Widget):
    """Paints a drawing by the Line API; the drawing is made once per frame and size."""

    DEFAULT_CSS = "Surface { height: 1fr; width: 1fr; }"

    def __init__(self, tones: Tones, id: str | None = None, under: str = "") -> None:  # noqa: A002
        super().__init__(id=id)
        self.tones = tones
        self.faded = False
        """Whether the data is outdated, and drawn faded."""
        self._under = under
        self._drawing: Drawing = nothing
        self._lines: Sequence[Line] | None = None
        self._drawn_for = (0, 0)
        self._strips: dict[int, Strip] = {}
        """Lines that are rendered already."""

    def show(self, drawing: Drawing, *, faded: bool = False) -> None:
        """Show another drawing: one refresh."""
        self._drawing, self._lines, self.faded = drawing, None, faded
        self.refresh()  # what was painted is forgotten when it is drawn

    def retone(self, tones: Tones) -> None:
        """Show the same in another theme."""
        self.tones = tones
        self._strips.clear()
        self.refresh()

    @property
    def lines(self) -> Sequence[Line]:
        """The lines at the present size."""
        size = (self.size.width, self.size.height)
        if self._lines is None or self._drawn_for != size:
            self._drawn_for, self._lines = size, self._drawing(*size)
            self._strips.clear()
        return self._lines

    def render_line(self, y: int) -> Strip:
        """Render a line."""
        lines = self.lines
        strip = self._strips.get(y)
        if strip is None:
            line: Line = lines[y] if y < len(lines) else ()
            strip = self.tones.strip(line, self.size.width, self._under, faded=self.faded)
            self._strips[y] = strip
        return strip

    def render_lines(self, crop: Region) -> list[Strip]:
        """Render the visible part."""
        return painted(self, crop, super().render_lines)
