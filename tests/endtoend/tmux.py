"""A program on a terminal of tmux, driven by keys and read as text: what an operator has over ssh."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.endtoend.cluster import PATIENCE
from tests.kit.waiting import wait_until

TMUX = shutil.which("tmux")


class Terminal:
    """One window of a tmux server of its own."""

    def __init__(
        self, folder: Path, command: Sequence[str], size: tuple[int, int], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a command in a folder."""
        assert TMUX is not None
        self._tmux = [TMUX, "-S", str(folder / "tmux.sock"), "-f", "/dev/null"]
        more = [word for each in (environment or {}).items() for word in ("-e", "=".join(each))]
        width, height = map(str, size)
        # A size in the environment, as pytest's, would count more than the terminal's own.
        self._run(
            "new-session",
            "-d",
            "-s",
            "main",
            "-x",
            width,
            "-y",
            height,
            "-c",
            str(folder),
            *more,
            "--",
            "sh",
            "-c",
            'env -u COLUMNS -u LINES "$@"; echo $? > exit',
            "sh",
            *command,
        )
        self._exit = folder / "exit"
        # What it printed last stays to be read when it has ended.
        self._run("set-option", "-t", "main", "remain-on-exit", "on")

    def _run(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"tmux {' '.join(words)}: {done.stderr}"
        return done.stdout

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names: `Enter`, `Escape`, `Down`, `C-c`, `a`."""
        for key in keys:
            self._run("send-keys", "-t", "main", key)

    def write(self, text: str) -> None:
        """Type a text."""
        self._run("send-keys", "-t", "main", "-l", text)

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        self._run("resize-window", "-t", "main", "-x", str(width), "-y", str(height))

    @property
    def screen(self) -> str:
        """What stands there now."""
        return self._run("capture-pane", "-p", "-t", "main")

    @property
    def ended(self) -> int | None:
        """The exit code of the command; None while it runs."""
        text = self._exit.read_text() if self._exit.exists() else ""
        return int(text) if text.strip() else None

    def wait(self, *words: str, holds: Callable[[str], bool] = bool) -> str:
        """Wait until all these words stand on the screen, and return it."""
        found = ""

        def there() -> bool:
            nonlocal found
            found = self.screen
            assert self.ended in {None, 0}, f"it has ended with code {self.ended}:\n{found}"
            return all(word in found for word in words) and holds(found)

        try:
            wait_until(there, f"{words} on the screen", seconds=PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{found}") from None
        return found

    def close(self) -> None:
        """End it all."""
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)
