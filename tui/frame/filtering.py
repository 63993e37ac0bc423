"""The filter: typed below the views, kept for all of them."""

from __future__ import annotations

import numpy as np
from textual import on
from textual.widgets import Input

from tui.frame.drawing import Drawing
from tui.kit.text import clean
from tui.screens.view import View
from tui.state.dashboard_state import DashboardState
from tui.tables.fields import ALERT_KEYS, CIRCUIT_KEYS, GPU_KEYS, NODE_KEYS, gpu_fields
from tui.tables.filter import ALL, Filter, FilterError, parse

_KEYS_OF = {"nodes": NODE_KEYS, "circuits": CIRCUIT_KEYS, "alerts": ALERT_KEYS}


BURST = 3.0
"""Seconds within which keys that came together are taken."""


class Filtering(Drawing):
    """What is listed, and what the map shows without colour."""

    _kept = float("-inf")
    """When a filter was kept last, monotonic seconds."""
    _before = ALL
    """What was in force when one began to type: half of what is wrong as a whole was never meant."""

    def _filter_keys(self) -> tuple[str, ...]:
        return _KEYS_OF.get(self.view.NAME, GPU_KEYS)

    def wanted(self, view: View) -> Filter:
        """The filter as the keys of a view understand it; all rows where they do not."""
        try:
            return parse(self._filter.text, _KEYS_OF.get(view.NAME, GPU_KEYS))
        except FilterError:
            return ALL

    @property
    def filters_here(self) -> bool:
        """Whether the list on the screen has the filter's keys."""
        return not hasattr(self.view, "do_filter") or self.wanted(self.view) is not ALL

    def dimmed(self, board: DashboardState) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
        """GPUs that the map shows without colour."""
        wanted = self.wanted(self.view)
        if wanted is ALL and not self.faults:
            return None
        mask = wanted.mask(gpu_fields(board, board.gpus), len(board.gpus))
        if self.faults:
            mask = mask & (board.gpu_standing > 0)
        dimmed: np.ndarray[tuple[int], np.dtype[np.bool_]] = ~mask
        return dimmed

    def toggle_faults(self) -> None:
        """Show only what is ill, or all."""
        self.faults = not self.faults
        self.redraw()

    def ask_filter(self) -> None:
        """Ask for a filter; it holds while it is typed."""
        self._kept, self._before = float("-inf"), self._filter
        self._show_filter()

    def _show_filter(self) -> None:
        entry = self._root.query_one("#filter", Input)
        entry.display = True
        self._root.query_one("#footer").display = False
        self._root.set_focus(entry)  # at once: what is typed behind `/` is the filter

    def filter_by(self, text: str) -> None:
        """Filter as if this had been typed."""
        self._root.query_one("#filter", Input).value = text

    @on(Input.Changed, "#filter")
    def _filter_typed(self, event: Input.Changed) -> None:
        try:
            self._filter = parse(event.value, self._filter_keys())
            self._fault = ""
            self._catch_up()
        except FilterError as error:
            self._filter = self._before
            stays = "all is shown" if self._filter is ALL else f"/{self._filter.text} stays"
            self._fault = f"{' ' * min(error.column, 40)}^ {error.problem} ({stays})"
            self._show_filter()  # it may have been closed before the last of it came
        fault = self._surface("#fault")
        fault.display = bool(self._fault)
        fault.show(lambda _w, _h: [[(clean(self._fault), "crit")]])
        self.redraw()

    def keep_filter(self) -> bool:
        """Keep what is typed, unless something is wrong with it; False while nothing is typed."""
        if self.screen is not self._root or not self._root.query_one("#filter").display:
            return False
        self._kept = self._clock()
        if not self._fault:
            self._close_filter()
        return True

    def _catch_up(self) -> None:
        """What was typed before the filter was kept may come after that: it is whole now."""
        if self._clock() - self._kept < BURST and self._root.query_one("#filter").display:
            self._close_filter()

    def _close_filter(self) -> None:
        self._root.query_one("#filter").display = False
        self._fault = ""
        self._surface("#fault").display = False
        first = self.view.first()
        if first is not None:
            self._root.set_focus(first)
        self.redraw()
