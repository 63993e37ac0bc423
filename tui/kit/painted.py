"""Lines for the terminal that bypass Textual's caches.

Textual's `Strip` caches its crops, and an uncropped one caches itself: a reference cycle, which only the
garbage collector frees. With 10,000 GPUs (3,000 segments a tick) 5 MB of garbage gathered between two
collections. Each line was also copied twice, for borders and filters that it does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.segment import Segment
from textual.color import Color
from textual.filter import ANSIToTruecolor, LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


class Painted(Strip):
    """A line that is as wide as its widget, and holds no caches."""

    __slots__ = ("_final",)

    def __init__(self, segments: Iterable[Segment], cell_length: int | None = None, *, final: bool = False) -> None:
        """`final`: whether all colours are true colours and none is dimmed, so that no filter changes it."""
        super().__init__(segments, cell_length)
        self._final = final

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        """Cut the line; an uncut one is returned as it is."""
        places = list(cuts)
        return [self] if places == [self.cell_length] else super().divide(places)

    def crop_extend(self, start: int, end: int, style: object) -> Strip:
        """Cut or lengthen the line; one of the right length is returned as it is."""
        if (start, end) == (0, self.cell_length):
            return self
        return super().crop_extend(start, end, style)  # type: ignore[arg-type]  # a Style or None

    def apply_filter(self, filter: LineFilter, background: Color) -> Strip:  # noqa: A002 - Textual's word
        """Return the line with filtered colours."""
        if self._final and isinstance(filter, ANSIToTruecolor):
            return self
        return Painted(filter.apply(list(self), background), self.cell_length)


def painted(widget: Widget, crop: Region, framed: Callable[[Region], list[Strip]]) -> list[Strip]:
    """Render the visible part of a widget. `framed`: Textual's own method, used for borders, and once for the
    edges left and right of all lines."""
    if widget.opacity < 1:
        return [Painted(strip, crop.width) for strip in framed(crop)]
    gutter, (width, height) = widget.styles.gutter, widget.region.size
    filters, background = widget.get_line_filters(), widget.background_colors[1]
    strips: list[Strip] = []
    edges: tuple[list[Segment], list[Segment]] | None = None
    for y in crop.line_range:
        if not gutter.top <= y < height - gutter.bottom:
            strips.append(Painted(framed(Region(0, y, width, 1))[0], width))
            continue
        strip = widget.render_line(y - gutter.top)
        for each in filters:
            strip = strip.apply_filter(each, background)
        if gutter.width:
            if edges is None:
                (line,) = framed(Region(0, y, width, 1))
                edges = list(line.crop(0, gutter.left)), list(line.crop(width - gutter.right))
            strip = Painted([*edges[0], *strip, *edges[1]], width)
        strips.append(strip)
    left, right = crop.column_span
    return strips if (left, right) == (0, width) else [s.crop(left, right) for s in strips]
