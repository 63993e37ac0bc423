"""Pictures: what a chart draws stands where it stands on the terminal."""

from __future__ import annotations

import re

from tui.frame.export import _RUN, _placed


def test_each_sign_of_dots_has_its_own_place() -> None:
    """Dots come from a font with wider signs: a run of them would be drawn past its cells."""
    run = '<text class="r7" x="100" y="20" textLength="48" clip-path="c">&#160;&#160;⣿⣷</text>'
    drawn = _RUN.sub(_placed, run)
    places = re.search(r' x="([^"]*)"', drawn)
    assert places is not None
    assert places[1] == "100.0 112.0 124.0 136.0"
    assert "textLength" not in drawn
    assert drawn.endswith('clip-path="c">&#160;&#160;⣿⣷</text>')


def test_what_has_no_dots_stays_as_it_is() -> None:
    run = '<text class="r7" x="100" y="20" textLength="48" clip-path="c">load</text>'
    assert _RUN.sub(_placed, run) == run
