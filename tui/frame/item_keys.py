"""The keys that copy, export or compare what is under the cursor."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import App

from tui.frame import export
from tui.kit.text import clean
from tui.screens.actions import page_url
from tui.screens.compare_times import Comparison, TimeForm
from tui.screens.context import ViewContext
from tui.screens.forms import Palette
from tui.screens.view import View


class ItemKeys:
    """Actions on what is under the cursor of the view on the screen."""

    def __init__(self, app: App[None], context: ViewContext, view: Callable[[], View]) -> None:
        self._app, self._context, self._view = app, context, view

    def copy(self, text: str) -> None:
        """Copy by the terminal (OSC 52), and show the text: not every terminal can copy."""
        self._app.copy_to_clipboard(text)
        self._app.notify(clean(text)[:300], title="copied", timeout=4, markup=False)

    def do_copy(self) -> None:
        """Copy the name of what is under the cursor."""
        chosen = self._view().chosen()
        if chosen is None:
            self._app.notify("there is nothing here to copy", timeout=3)
        else:
            self.copy(chosen[1])

    def do_copy_json(self) -> None:
        """Copy the record under the cursor as JSON."""
        record = self._view().record()
        if record is None:
            self._app.notify("there is nothing here to copy", timeout=3)
        else:
            self._app.copy_to_clipboard(export.json_of(record))
            self._app.notify("as JSON", title="copied", timeout=3)

    def do_copy_address(self) -> None:
        """Copy the URL of the web page of what is under the cursor."""
        self.copy(page_url(self._context.feed.url, self._view().chosen()))

    def do_export(self) -> None:
        """Write the table or the picture to a file."""
        view = self._view()
        choices = export.choices(view)

        def answered(choice: tuple[str, str, str] | None) -> None:
            if choice is not None:
                self._app.notify(export.write(choice[2], self._app, view), timeout=6, markup=False)

        self._app.push_screen(
            Palette(self._context.tones, lambda text: [c for c in choices if text.casefold() in c[1].casefold()]),
            answered,
        )

    def _comparable(self) -> tuple[str, str] | None:
        chosen = self._view().chosen()
        return chosen if chosen is not None and chosen[0] in {"gpu", "node"} else None

    def do_compare(self) -> None:
        """Add the GPU or node under the cursor to the compare tray, or remove it."""
        chosen, context = self._comparable(), self._context
        if chosen is None:
            return
        if chosen in context.tray:
            context.tray.remove(chosen)
        else:
            context.tray = [*(t for t in context.tray if t[0] == chosen[0]), chosen][-4:]
        self._app.notify(f"{len(context.tray)} to compare; C opens the tray", timeout=3)

    def do_then(self) -> None:
        """Compare the GPU or node with itself: at the time of the time bar, else at one to be typed."""
        chosen, context = self._comparable(), self._context
        if chosen is None:
            return
        kind, name = chosen

        def answered(at: int | None) -> None:
            if at is not None:
                context.frame.open("compare", str(Comparison(at, kind, name)))

        if context.time.replaying:
            answered(context.shown.at)
        else:
            form = TimeForm.to_compare(context.tones, name, lambda: context.newest.at, utc=context.utc)
            self._app.push_screen(form, answered)

    def do_tray(self) -> None:
        """Compare what is in the tray."""
        if self._context.tray:
            self._context.frame.open("compare", "tray")
        else:
            self._app.notify("nothing to compare yet: c on a GPU or node", timeout=3)
