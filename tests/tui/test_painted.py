"""Lines that are painted past Textual's cache look as they would in it, and leave nothing behind."""

from __future__ import annotations

import gc
from collections.abc import Iterable

import pytest
from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tests.tui.cluster import until
from tests.tui.test_app import staged
from tui.app import Top
from tui.kit.surface import Surface
from tui.tables.table import VirtualTable


def cells(strip: Iterable[Segment]) -> list[tuple[str, str]]:
    """Each sign and what it looks like."""
    return [(sign, str(segment.style)) for segment in strip for sign in segment.text]


def shown(app: Top) -> list[Surface | VirtualTable]:
    """The widgets that are painted, on the screen now."""
    widgets = [*app.screen.query(Surface), *app.screen.query(VirtualTable)]
    return [widget for widget in widgets if widget.is_on_screen and widget.region.area]


@pytest.mark.parametrize("size", [(160, 50), (80, 24)])
async def test_every_widget_looks_as_textual_would_paint_it(size: tuple[int, int]) -> None:
    """With a border, padding, the part of a widget that is seen, faded or not."""
    async with staged(size) as (pilot, app, _):
        framed = 0
        for key in ("1", "2", "enter", "4", "5"):
            await pilot.press(key)
            await pilot.pause(0.1)
            for faded in (False, True):
                for widget in shown(app):
                    widget.faded = faded
                    widget.retone(app.context.tones)
                    width, height = widget.region.size
                    framed += bool(widget.styles.gutter)
                    for crop in (Region(0, 0, width, height), Region(width // 3, height // 3, width // 2, height // 2)):
                        ours = [cells(strip) for strip in widget.render_lines(crop)]
                        theirs = [cells(strip) for strip in Widget.render_lines(widget, crop)]
                        assert ours == theirs, (key, widget, crop, faded)
        assert (framed > 0) == (size[0] >= 120)


@pytest.mark.parametrize("key", ["1", "3"], ids=["surfaces", "a table"])
async def test_a_repaint_leaves_no_circle_for_the_garbage_collector(key: str) -> None:
    """Else each tick of a large fleet leaves thousands of segments until it comes by. Painted without a turn of
    the loop in between: what Textual itself paints by time is not counted."""
    async with staged((160, 50), every=3600.0) as (pilot, app, _):
        await pilot.press(key)
        await until(pilot, lambda _: any(isinstance(each, VirtualTable) for each in shown(app)) == (key == "3"))
        gc.collect()
        gc.disable()
        try:
            for _ in range(6):
                for widget in shown(app):
                    widget.retone(app.context.tones)
                    width, height = widget.region.size
                    widget.render_lines(Region(0, 0, width, height))
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = sum(isinstance(each, Strip) for each in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert left == 0
