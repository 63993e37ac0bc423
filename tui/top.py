"""The start of the dashboard, and pictures of it.

Textual is loaded inside the functions: it takes a while, and the environment variables that choose theme
and colours must be set before.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from telemetry.errors import ConfigError

if TYPE_CHECKING:
    from tui.app import Top
    from tui.frame.start_line import OwnAggregator

SLOW = 2.0
"""Seconds between two pictures over ssh: 10,000 GPUs in motion are 170 kB each."""
_MMAP_THRESHOLD, _LARGE = -3, 128 * 1024
"""`M_MMAP_THRESHOLD` of mallopt(3), and its default in bytes: setting it keeps glibc from raising it to the
largest message that ever came, and from holding as much memory for ever."""


def run_top(
    url: str,
    token: str | None = None,
    *,
    write: bool = False,
    theme: str | None = None,
    ascii_only: bool = False,
    every: float | None = None,
    who: str = "",
    view: str = "overview",
    recorded: bool = False,
    own: OwnAggregator | None = None,
) -> None:
    """Show the cluster of the aggregator at `url` until the user quits.

    `token`: the aggregator's bearer token, where it requires one. `write`: acknowledge and silence
    too. `every`: seconds between two pictures; without, 1, and 2 over ssh.
    `recorded`: whether the aggregator serves a recording, which is played from its beginning. `own`: the
    aggregator where our own command has started it, and the dashboard ends with it.
    """
    far = "SSH_CONNECTION" in os.environ
    theme, ascii_only = _colours(theme, ascii_only=ascii_only)
    prepare()
    try:
        from tui.app import Top  # noqa: PLC0415 - see `_colours`

        app = Top(
            url,
            token,
            every=every or (SLOW if far else 1.0),
            theme=theme or "dark",
            ascii_only=ascii_only,
            write=write,
            who=who,
            view=view,
            settled=settle,
            recorded=recorded,
            own=own,
        )
        _need_terminal()
        app.run()
    finally:
        gc.enable()  # also where it ended before all was loaded
        gc.unfreeze()  # or DuckDB, if the caller has loaded it, reports leaks at exit
    if app.return_code:  # an exception, shown on the terminal: the exit code reports it too
        raise SystemExit(_UNJUDGED)


def run_own_jobs(
    url: str,
    token: str | None,
    user: str,
    *,
    theme: str | None = None,
    ascii_only: bool = False,
    every: float | None = None,
) -> None:
    """Show the jobs of a user until he quits: `user` is a name, or `me` for that of the token."""
    theme, ascii_only = _colours(theme, ascii_only=ascii_only)
    prepare()
    try:
        from tui.frame.own_jobs import OwnJobs  # noqa: PLC0415 - see `_colours`
        from tui.kit.theme import MONO, THEMES, Tones  # noqa: PLC0415

        plain = MONO if "NO_COLOR" in os.environ else THEMES[theme or "dark"]
        tones = Tones(plain, ascii_only=ascii_only)
        app = OwnJobs(url, token, user, tones, every=every or SLOW, settled=settle)
        _need_terminal()
        app.run()
    finally:
        gc.enable()
        gc.unfreeze()
    if app.return_code:
        raise SystemExit(_UNJUDGED)


def _colours(theme: str | None, *, ascii_only: bool) -> tuple[str | None, bool]:
    """Set the environment from which Textual takes its colours, before it is loaded; return the theme and
    whether only ASCII is shown."""
    if "NO_COLOR" in os.environ or theme in {"mono", "sixteen"}:
        # With NO_COLOR alone Textual still sends shades of grey as true colour; this theme sends
        # none, and only works when it is chosen before Textual is loaded.
        os.environ.setdefault("TEXTUAL_THEME", "ansi-dark")
    elif theme is None and os.environ.get("TERM") == "dumb":  # a terminal without colours
        theme, ascii_only = "mono", True
        os.environ.setdefault("TEXTUAL_THEME", "ansi-dark")
    elif theme is None and os.environ.get("TERM") in {"linux", "vt100", "vt220", "ansi"}:
        theme = "sixteen"
        os.environ.setdefault("TEXTUAL_THEME", "ansi-dark")
    if "SSH_CONNECTION" in os.environ:
        os.environ.setdefault("TEXTUAL_COLOR_SYSTEM", "256")  # half the bytes of true colour
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    return theme, ascii_only


_UNJUDGED = 3
"""Exit code of a command that could give no answer: docs/exit-codes.md."""


def prepare() -> None:
    """Call before Textual is loaded: no garbage collection until `settle`, no thread a core, and no
    growing threshold of the allocator.

    With 10,000 GPUs (docs/decisions/0022-no-tricks-with-the-interpreter.md) a collection that looks
    through all loaded modules holds the loop for 70 ms in place of 34.
    """
    gc.disable()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with suppress(OSError, AttributeError):  # a C library other than glibc has no such setting
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)


def settle() -> None:
    """Call when all modules are loaded: later collections skip them."""
    gc.freeze()
    gc.enable()


def _need_terminal() -> None:
    """Raise `ConfigError` without a terminal: Textual reads standard input and writes to standard error, except
    in a browser."""
    if "TEXTUAL_DRIVER" not in os.environ and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError("kilowatch top", "this is no terminal", "For pipes and logs there is `kilowatch status`.")


def screenshot(app: Top) -> str:
    """Return the screen of a running dashboard as an SVG."""
    return app.export_screenshot(title="kilowatch top")
