"""Going places: views, pages, and the way back."""

from __future__ import annotations

from tui.frame.drawing import Drawing
from tui.screens.page import PageView
from tui.screens.view import View


class Places(Drawing):
    """Where the user is."""

    def open(self, kind: str, subject: str) -> None:
        """Open the page of a thing."""
        if self._stack[-1] != (kind, subject):
            self._stack.append((kind, subject))
            self._stack = (
                self._stack[:1] + self._stack[-8:] if len(self._stack) > 9 else self._stack
            )
        self._show_view()

    def go(self, name: str) -> None:
        """Go to a view."""
        self._stack = [(name, "")]
        self._show_view()

    def _show_view(self) -> None:
        name, subject = self._stack[-1]
        for each in self._root.query(View):
            each.display = name == each.NAME
        view = self.view
        if subject:
            view.subject = subject
            if isinstance(view, PageView):
                view.page.top = 0
        first = view.first()
        if first is not None and self.screen is self._root:
            self._root.set_focus(first)  # at once: the next key may be its
        self.rewant()
        self.call_after_refresh(self.redraw)
