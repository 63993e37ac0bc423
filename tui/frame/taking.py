"""Taking things along: copies, files, and the compare tray."""

from __future__ import annotations

from tui.frame.export import Export
from tui.frame.places import Places
from tui.kit.text import clean
from tui.screens.forms import Palette
from tui.screens.then import Then, ThenForm


class Taking(Places):
    """What a user takes from the screen."""

    def copy(self, text: str) -> None:
        """Copy by the terminal (OSC 52), and show it: not every terminal can."""
        self.copy_to_clipboard(text)
        self.notify(clean(text)[:300], title="copied", timeout=4, markup=False)

    def copy_chosen(self) -> None:
        """Copy the name of what is under the cursor."""
        chosen = self.view.chosen()
        if chosen is None:
            self.notify("there is nothing here to copy", timeout=3)
        else:
            self.copy(chosen[1])

    def do_copy_json(self) -> None:
        """Copy all that is known of it."""
        self.copy_record()

    def copy_record(self) -> None:
        """Copy all that is known of what is under the cursor."""
        record = self.view.record()
        if record is None:
            self.notify("there is nothing here to copy", timeout=3)
        else:
            self.copy_to_clipboard(Export.json_of(record))
            self.notify("as JSON", title="copied", timeout=3)

    def do_export(self) -> None:
        """Write the table or the picture to a file."""
        choices = Export.choices(self.view)

        def answered(choice: tuple[str, str, str] | None) -> None:
            if choice is not None:
                said = Export.write(choice[2], self, self.view)
                self.notify(said, timeout=6, markup=False)

        self.push_screen(
            Palette(
                self.tones, lambda text: [c for c in choices if text.casefold() in c[1].casefold()]
            ),
            answered,
        )

    def compare_chosen(self) -> None:
        """Put what is under the cursor into the compare tray, or take it out."""
        chosen = self.view.chosen()
        if chosen is None or chosen[0] not in {"gpu", "node"}:
            return
        if chosen in self.tray:
            self.tray.remove(chosen)
        else:
            self.tray = [*(t for t in self.tray if t[0] == chosen[0]), chosen][-4:]
        self.notify(f"{len(self.tray)} to compare; C opens the tray", timeout=3)

    def compare_then(self) -> None:
        """Compare what is under the cursor with what it was: at the time that the time bar shows,
        else at one that is asked for."""
        chosen = self.view.chosen()
        if chosen is None or chosen[0] not in {"gpu", "node"}:
            return
        kind, name = chosen

        def answered(at: int | None) -> None:
            if at is not None:
                self.open("compare", str(Then(at, kind, name)))

        if self.clock.replaying:
            answered(self.shown.at)
        else:
            self.push_screen(
                ThenForm(self.tones, name, lambda: self.feed.board.at, utc=self.utc), answered
            )

    def do_tray(self) -> None:
        """Compare what is in the tray."""
        if self.tray:
            self.open("compare", "tray")
        else:
            self.notify("nothing to compare yet: c on a GPU or node", timeout=3)
