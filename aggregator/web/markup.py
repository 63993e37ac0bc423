"""Small pieces of HTML: every text that comes from outside is escaped here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from urllib.parse import quote, urlencode

from present.row import FactRow, Tone
from telemetry.text import ABSENT, duration, estimated_duration, rfc3339, short_duration, time_of_day, timestamp
from telemetry.text.printable import one_line

_LINK = re.compile(r'<a href="([^"]+)"')


WIDE = '<div class="wide" tabindex="0">'
"""Begin of what is scrolled sideways where it is wider than the screen, by keys too."""


class Html(str):
    """HTML where else a text is taken."""

    __slots__ = ()


def unseen(words: str) -> Html:
    """Return words that only a screen reader says."""
    return Html(f'<span class="hidden">{html.escape(words)}</span>')


def text(words: object) -> str:
    """Return words for HTML: printable, on one line, escaped."""
    return html.escape(one_line(str(words)))


def prose(words: str) -> str:
    """Return a sentence of a rule for HTML, with `code` as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", text(words))


def path(*parts: str, **asked: str | None) -> str:
    """Return a path below the root of the pages, for `href`: relative, so that a proxy may put a prefix
    before it. Empty parameters are left out."""
    query = urlencode({name: value for name, value in asked.items() if value})
    way = "/".join(quote(part, safe="") for part in parts)
    return html.escape(f"{way}?{query}" if query else way)


def link(words: object, *parts: str, **asked: str | None) -> str:
    """Return a link to a page."""
    return f'<a href="{path(*parts, **asked)}">{text(words)}</a>'


def moment(at: int, now: int | None = None) -> str:
    """Return an instant, ns since 1970: the time of day, the whole time for programs and on hover; with
    `now` also how long ago."""
    if at <= 0:
        return ABSENT
    day = 86_400 * 1_000_000_000
    shown = time_of_day(at) if now is not None and abs(now - at) < day else timestamp(at)
    ago = "" if now is None else f' <span class="dim">{duration(max(0, now - at) / 1e9)} ago</span>'
    return f'<time datetime="{rfc3339(at)}" title="{timestamp(at)}">{shown}</time>{ago}'


def clock_time(at: int, near: int) -> str:
    """Return an instant as the time of day, with its day where it is far from another instant."""
    shown = time_of_day(at) if abs(near - at) < 20 * 3600 * 1_000_000_000 else timestamp(at)
    return f'<time datetime="{rfc3339(at)}" title="{timestamp(at)}">{shown}</time>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and values; values are HTML, empty ones are left out."""
    rows = "".join(f"<dt>{text(name)}</dt><dd>{value}</dd>" for name, value in pairs if value)
    return f'<dl class="facts">{rows}</dl>' if rows else ""


def toned(words: str, tone: Tone) -> str:
    """Return HTML as loud as its tone."""
    match tone:
        case Tone.PLAIN:
            return words
        case Tone.STRONG | Tone.WARN | Tone.CRIT:
            return f'<strong class="{tone}">{words}</strong>'
        case Tone.DIM | Tone.STALE:
            return f'<span class="{tone}">{words}</span>'


def fact(row: FactRow) -> str:
    """Return the value of a row with its times and its note; a countdown runs on in the browser."""
    held = f' <span class="dim">for {duration(row.since)}</span>' if row.since else ""
    left = "" if row.until is None else f" {countdown(row.until)}"
    note = f' <span class="dim">{text(row.note)}</span>' if row.note else ""
    return f"{toned(f'{text(row.value)}{left}', row.tone)}{held}{note}"


def countdown(seconds: float) -> str:
    """Return seconds that are left; the browser lets them run on."""
    if seconds > 86_400:
        return short_duration(seconds)
    hours = ' class="hours"' if seconds >= 3600 else ""
    return f'<span{hours} data-countdown="{seconds:.0f}">{estimated_duration(seconds)}</span>'


def section(title: str, body: str, name: str, *, more: str = "") -> str:
    """Return a part of a page with its heading; nothing without a body. `name`: its anchor; `more`: a link
    to the whole."""
    if not body:
        return ""
    head = f'<span class="more">{more}</span>' if more else ""
    return f'<section data-k="{name}" class="panel" aria-labelledby="{name}">{head}<h2 id="{name}">{text(title)}</h2>{body}</section>'


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Iterable[int] = (),
    name: str = "",
    marks: Sequence[str] = (),
) -> str:
    """Return a table; cells are HTML. `numbers`: columns that are right-aligned; `name`: its class; `marks`: the class of
    each row."""
    right = set(numbers)

    def cells(row: Sequence[str], tag: str) -> str:
        scope = ' scope="col"' if tag == "th" else ""
        return "".join(
            f"<{tag}{scope}{' class=num' if place in right else ''}>{cell}</{tag}>" for place, cell in enumerate(row)
        )

    body = "".join(
        keyed_row(cells(row, "td"), mark, place)
        for place, (row, mark) in enumerate(zip_longest(rows, marks, fillvalue=""))
    )
    if not body:
        return ""
    head = cells([each if isinstance(each, Html) else text(each) for each in heads], "th")
    return (
        f'{WIDE}<table class="{name}"><caption data-k="caption">{text(caption)}</caption>'
        f'<thead><tr>{head}</tr></thead><tbody data-k="rows">{body}</tbody></table></div>'
    )


def part(key: str, body: str) -> str:
    """Return HTML that is updated by itself."""
    return f'<span data-k="{key}">{body}</span>'


def keyed_row(cells: str, mark: str = "", place: object = "") -> str:
    """Return a row of a table, which is updated by itself: known by its first link, or else by its place. `cells`: HTML;
    `mark`: its class."""
    found = _LINK.search(cells)
    key = f' data-k="{found.group(1) if found else place}"'
    return f"<tr{key}{f' class={mark}' if mark else ''}>{cells}</tr>"


def page_links(way: str, page: int, pages: int, keep: Mapping[str, str | None]) -> str:
    """Return links to the pages before and after one of a long table. `way`: its path; `keep`: its other parameters."""
    found = " ".join(
        f'<a href="{path(way, page=None if number == 1 else str(number), **keep)}">{words} page</a>'
        for number, words in ((page - 1, "previous"), (page + 1, "next"))
        if 1 <= number <= pages
    )
    return f'<nav aria-label="More {way}"><p>{found}</p></nav>' if found else ""
