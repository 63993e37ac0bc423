"""The worked sites of the documentation are what `kilowatch plan` says about their configurations."""

from __future__ import annotations

import struct

import pytest

from docs.worked_sites import FOLDER, PICTURES, SITES, outdated, page, printed


def test_texts_and_page_are_as_computed() -> None:
    assert outdated() == []
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(SITES)


@pytest.mark.parametrize("name", SITES)
def test_each_site_has_its_picture(name: str) -> None:
    """A picture is as high as its text is long: one that was not drawn anew is found by its lines."""
    header = (PICTURES / f"site-{name}.png").read_bytes()[:24]
    height = struct.unpack(">I", header[20:])[0]
    lines = len(printed(name).splitlines()) + 1
    assert height == pytest.approx(24.4 * lines + 50, abs=12)
    assert f"pictures/site-{name}.png" in page()
