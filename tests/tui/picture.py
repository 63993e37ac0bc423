"""Pictures of the dashboard that are compared with what is kept: `tests/tui/snapshots`.

A picture is small and can be read in a diff: an SVG with one line of text for each line of the
terminal, or that text alone with a number for the colours of each line. Where one has changed for a
good reason: UPDATE_SNAPSHOTS=1 python -m pytest tests/tui/test_snapshots.py, look at it, keep it.
"""

from __future__ import annotations

import difflib
import html
import os
import re
import zlib
from pathlib import Path

from tui.app import Top

FOLDER = Path(__file__).parent / "snapshots"
CELL, LINE = 12.2, 24.4
"""Size of a sign in Textual's pictures, pixels."""
_STYLE = re.compile(r"\.terminal-\d+-(r\d+) \{ ([^}]*) \}")
_TEXT = re.compile(r'<text class="terminal-\d+-(r\d+)" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>')
_RECT = re.compile(r'<rect fill="(#[0-9a-f]{6})" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"')


def svg_of(app: Top) -> str:
    """The screen as a small SVG: backgrounds first, then a line of text for each line."""
    raw = app.export_screenshot(title="")
    width, height = app.size
    names = {name: _name(style) for name, style in _STYLE.findall(raw)}
    styles = {names[name]: style.rstrip("; ") for name, style in _STYLE.findall(raw)}
    lines: list[list[tuple[int, str, str]]] = [[] for _ in range(height)]
    for name, x, y, text in _TEXT.findall(raw):
        row, words = int((float(y) - 1) / LINE), html.unescape(text).replace("\xa0", " ")
        if row < height and words.strip("\n"):
            lines[row].append((round(float(x) / CELL), names[name], words))
    behind = [
        f'<rect x="{_plain(round(float(x) / CELL) * CELL)}" y="{_plain(round((float(y) - 1.5) / LINE) * LINE)}" '
        f'width="{_plain(float(size))}" height="{LINE}" fill="{fill}"/>'
        for fill, x, y, size in _RECT.findall(raw)
        if fill != app.context.tones.theme.background
    ]
    used = sorted({name for line in lines for _, name, words in line if words.strip()})
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_plain(width * CELL)} {_plain(height * LINE)}" '
        'xml:space="preserve" font-family="monospace" font-size="20">',
        "<style>", *(f".{name} {{ {styles[name]} }}" for name in used), "</style>",
        f'<rect width="100%" height="100%" fill="{app.context.tones.theme.background}"/>',
        *behind, *(_line(number, line) for number, line in enumerate(lines)), "</svg>", "",
    ])  # fmt: skip


def _line(number: int, runs: list[tuple[int, str, str]]) -> str:
    parts = [
        f'<tspan class="{name}" x="{_plain(at * CELL)}">{html.escape(words, quote=False)}</tspan>'
        for at, name, words in sorted(runs)
        if words.strip()
    ]
    return f'<text y="{_plain((number + 0.8) * LINE)}">{"".join(parts)}</text>'


def _name(style: str) -> str:
    """A class that says what it looks like, so that one more colour changes no other name."""
    fill = re.search(r"#([0-9a-f]{6})", style)
    marks = "".join(mark[0] for mark in ("bold", "italic", "underline", "strike") if mark in style)
    return f"c{fill[1] if fill else ''}{marks}"


def _plain(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def text_of(app: Top) -> str:
    """The screen as text, each line after a number that stands for its colours."""
    lines = []
    for strip in app.screen._compositor.render_strips():
        style = ";".join(f"{segment.style}*{len(segment.text)}" for segment in strip)
        lines.append(f"{zlib.crc32(style.encode()):08x} {strip.text.rstrip()}".rstrip())
    return "\n".join([*lines, ""])


def differs(name: str, found: str) -> str:
    """Return how a picture differs from the one that is kept, as a diff; empty when it does not.
    With UPDATE_SNAPSHOTS it is kept instead."""
    path = FOLDER / name
    if os.environ.get("UPDATE_SNAPSHOTS"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    if not path.exists():
        return f"{name} is not kept yet: UPDATE_SNAPSHOTS=1 keeps it\n"
    kept = path.read_text(encoding="utf-8")
    lines = difflib.unified_diff(kept.splitlines(), found.splitlines(), f"kept/{name}", f"now/{name}", "", "", 0, "")
    return "\n".join(lines)
