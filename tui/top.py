"""How the dashboard is started, and how a picture of it is taken.

Textual is loaded inside the functions: it takes a while, and it must not be loaded before the
environment says which theme fits a terminal without colour.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tui.app import Top


def run_top(url: str, token: str | None = None) -> None:
    """Show the cluster of the aggregator at `url` until the user quits.

    `token`: the aggregator's bearer token, where it asks for one.
    """
    if "NO_COLOR" in os.environ:
        # With NO_COLOR alone Textual still sends shades of grey as true colour; this theme sends
        # none, and only works when it is chosen before Textual is loaded.
        os.environ.setdefault("TEXTUAL_THEME", "ansi-dark")
    from tui.app import Top  # noqa: PLC0415 - see above

    Top(url, token).run()


def screenshot(app: Top) -> str:
    """Return the screen of a running dashboard as an SVG."""
    return app.export_screenshot(title="kilowatch top")
