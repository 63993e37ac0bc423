"""HTML pages that are one file each: without scripts, or anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from alerts.message.text import clean

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:54em;margin:2em auto;padding:0 1em;color:#1b1f24}"
    "table{border-collapse:collapse;width:100%;margin:1em 0}td,th{padding:.3em .6em;text-align:right;"
    "border-bottom:1px solid #d0d7de;vertical-align:top}td:first-child,th:first-child,.text{text-align:left}"
    ".total td{font-weight:600;border-top:2px solid #57606a}.note{color:#57606a;font-size:13px}"
)


def html_page(title: str, parts: Iterable[str]) -> str:
    """Return a page under its title. `parts`: HTML whose texts are escaped."""
    head = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{text(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{text(title)}</h1>",
    ]
    return "\n".join([*head, *parts, "</body></html>", ""])


def text(words: str) -> str:
    """Return words as HTML, without control characters."""
    return escape(clean(words))


def note(words: str) -> str:
    """Return a paragraph in small print."""
    return f'<p class="note">{text(words)}</p>'


def html_table(rows: Sequence[Sequence[str]], *, heading: bool = True, total: bool = False) -> str:
    """Return a table. `heading`: whether the first row is one; `total`: whether to set off the row of that name."""
    found = []
    for number, row in enumerate(rows):
        tag = "th" if heading and number == 0 else "td"
        mark = ' class="total"' if total and row[0] == "total" else ""
        notes = rows[0][-1] == "note"
        cells = "".join(
            f"<{tag}{' class=text' if notes and column == len(row) - 1 else ''}>{text(cell)}</{tag}>"
            for column, cell in enumerate(row)
        )
        found.append(f"<tr{mark}>{cells}</tr>")
    return f"<table>{''.join(found)}</table>"
