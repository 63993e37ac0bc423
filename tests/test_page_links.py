"""Every link of the pages leads to a file, and to a heading, that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/decisions/*.md")])
_FENCE = re.compile(r"^(```|~~~).*?^\1\s*?$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)
_NO_ANCHOR = re.compile(r"[^\w\- ]")


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings as Git hosts make them, and those it sets itself."""
    plain = _FENCE.sub("", page)
    found = {
        _NO_ANCHOR.sub("", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", words).lower()).replace(" ", "-")
        for words in _HEADING.findall(plain)
    }
    return found | set(re.findall(r'(?:id|name)="([^"]+)"', plain))


def broken(page: Path, text: str) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    faults = []
    for link in _LINK.findall(_CODE.sub("", _FENCE.sub("", text))):
        if re.match(r"[a-z]+:", link):
            continue
        way, _, anchor = link.partition("#")
        target = page if not way else page.parent / way
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target.read_text())):
            faults.append(link)
    return faults


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_of_a_page_is_broken(page: Path) -> None:
    assert broken(page, page.read_text()) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    (tmp_path / "b.md").write_text("# What it `does`, twice\n")
    text = (
        "# Here\n[a](b.md#what-it-does-twice) [b](#here) [c](none.md) [d](b.md#none) [e](#none)\n"
        "`[f](code.md)`\n```\n[g](fence.md)\n```\n[h](https://example.org/none)\n"
    )
    page.write_text(text)
    assert broken(page, text) == ["none.md", "b.md#none", "#none"]
