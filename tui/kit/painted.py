"""Painted lines on the shortest way to the terminal.

Textual's `Strip` remembers what was cut from it, and where nothing was cut it remembers itself: a
circle, which only the garbage collector finds. 10,000 GPUs are 3,000 segments a tick: in the ten
seconds until it came by, 5 MB lay about. And each line was copied twice, for frames and colours that
it does not have.
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
    """One line, of exactly its width."""

    __slots__ = ("_final",)

    def __init__(
        self, segments: Iterable[Segment], cell_length: int | None = None, *, final: bool = False
    ) -> None:
        """`final`: all colours are those of the terminal to be, none is dimmed."""
        super().__init__(segments, cell_length)
        self._final = final

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        """Cut it; a whole line stays what it is."""
        places = list(cuts)
        return [self] if places == [self.cell_length] else super().divide(places)

    def crop_extend(self, start: int, end: int, style: object) -> Strip:
        """Cut or lengthen it; a whole line stays what it is."""
        if (start, end) == (0, self.cell_length):
            return self
        return super().crop_extend(start, end, style)  # type: ignore[arg-type]  # a Style or None

    def apply_filter(self, filter: LineFilter, background: Color) -> Strip:  # noqa: A002 - Textual's word
        """Turn its colours into others."""
        if self._final and isinstance(filter, ANSIToTruecolor):
            return self
        return Painted(filter.apply(list(self), background), self.cell_length)


def painted(widget: Widget, crop: Region, framed: Callable[[Region], list[Strip]]) -> list[Strip]:
    """Paint the part of a widget that is seen. `framed`: Textual's own way; borders are drawn so, and
    of the lines between them one, for what stands left and right of all."""
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
