"""Files that a user writes: the table as CSV or JSON, the screen as text, SVG or PNG."""

from __future__ import annotations

import csv
import html
import re
import time
from pathlib import Path
from typing import Any

import msgspec
from textual.app import App

from tui.kit.text import clean
from tui.screens.view import View

_FONTS = "/usr/share/fonts/truetype/dejavu"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def choices(view: View) -> list[tuple[str, str, str]]:
    """Return the formats of a view, for the palette: group, text, file suffix."""
    found = [
        ("picture", "SVG of the screen", "svg"),
        ("picture", "PNG of the screen", "png"),
        ("text", "text of the screen", "txt"),
    ]
    if view.table():
        return [("table", "CSV of all rows", "csv"), ("table", "JSON of all rows", "json"), *found]
    if view.record() is not None:
        return [("record", "JSON of all that is known", "json"), *found]
    return found


def json_of(record: Any) -> str:
    """Return a record as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(record)).decode()


def write(kind: str, app: App[None], view: View) -> str:
    """Write a file into the working directory; returns a message for the user."""
    path = Path(f"kilowatch-{view.NAME}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.{kind}")
    try:
        match kind:
            case "csv":
                _csv(path, view.table())
            case "json":
                path.write_text(json_of(view.table() or view.record()))
            case "svg":
                path.write_text(app.export_screenshot(title="kilowatch"))
            case "png":
                path.write_bytes(png(app.export_screenshot(title="kilowatch")))
            case _:
                path.write_text(text_of(app) + "\n")
    except OSError as error:
        return f"{path}: {error.strerror}"
    except ImportError:
        return "PNG needs resvg-py: pip install 'kilowatch[pictures]'; SVG needs nothing"
    return f"wrote {path.absolute()}"


def _csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows. Names come from outside, and a spreadsheet reads `=...` as a formula."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [], extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: _without_formula(value) for key, value in row.items()})


def _without_formula(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = clean(value)
    return f"'{text}" if text.startswith(_FORMULA) and not re.fullmatch(r"[-+][\d.,]+( \S+)?", text) else text


def text_of(app: App[None]) -> str:
    """Return the screen as text."""
    strips = app.screen._compositor.render_strips()  # noqa: SLF001 - Textual has no public way
    return "\n".join(strip.text.rstrip() for strip in strips)


_RUN = re.compile(r'<text ([^>]*?)x="([0-9.]+)"([^>]*?) textLength="([0-9.]+)"([^>]*)>([^<]*)</text>')
_BRAILLE = re.compile("[\u2800-\u28ff]")


def _placed(found: re.Match[str]) -> str:
    """Give each sign of a run of braille its own place: they come from a font with wider signs, and
    would be drawn past their cells, with gaps where the chart has none."""
    before, x, between, length, after, text = found.groups()
    if not _BRAILLE.search(text):
        return found[0]
    count = max(1, len(html.unescape(text)))
    wide = float(length) / count
    places = " ".join(f"{float(x) + number * wide:.1f}" for number in range(count))
    return f'<text {before}x="{places}"{between}{after}>{text}</text>'


def png(svg: str) -> bytes:
    """Render an SVG. Textual's names a web font, which no renderer loads; DejaVu is on the disk."""
    import resvg_py  # noqa: PLC0415 - optional

    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg).replace("Fira Code", "DejaVu Sans Mono")
    svg = _RUN.sub(_placed, svg)
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, font_dirs=[_FONTS]))
