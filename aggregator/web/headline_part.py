"""The first part of a page: the headline with its countdown, and the tiles below it."""

from __future__ import annotations

from aggregator.web.bars import part_bar
from aggregator.web.icons import icon
from aggregator.web.markup import countdown, link, path, text
from present.device.figures import DeviceFigure
from present.fleet.headline import Headline
from present.row import Tone

OLD = (
    f'<div class="verdict unknown old" role="status">{icon("unknown")}<div><p class="say">This page is old: the aggregator does not '
    'answer.</p><p class="why">Notifications do not depend on this page.</p></div></div>'
)
"""Shown by the script while nothing answers."""


def headline_part(found: Headline) -> str:
    """Return a headline as the first part of a page."""
    title = text(found.text)
    if found.incident:
        title = f'<a href="{path("incidents", found.incident)}">{title}</a>'
    # A line of its own: behind a reason that changes it would be elsewhere every time.
    act = f'<p class="why"><strong>What helps: {text(found.act.rstrip("."))}.</strong></p>' if found.act else ""
    end = "." if found.why and act and not found.why.endswith(".") else ""
    why = f'<p class="why">{text(found.why)}{end}</p>' if found.why else ""
    left = ""
    if found.trips is not None and found.trips.trip_seconds.earliest is not None:
        circuit = link(found.trips.id, "circuits", found.trips.id)
        left = (
            f'<div class="left"><b>{countdown(found.trips.trip_seconds.earliest)}</b>'
            f"<small>to the earliest trip of {circuit}, an estimate</small></div>"
        )
    return f'<div data-k="verdict" class="verdict {found.urgency}" aria-live="polite">{icon(found.urgency)}<div><p class="say">{title}</p>{why}{act}</div>{left}</div>'


def tile(
    label: str, value: str, *, sub: str = "", aside: str = "", part: str = "", drawn: str = "", tone: Tone = Tone.PLAIN
) -> str:
    """Return a tile: a figure, and a line of its source. All but `value` is HTML; `drawn` stands beside the figure,
    `part` below it over the whole width."""
    number, _, unit = value.partition(" ")
    below = f'<div class="wide-part">{part}</div>' if part else ""
    beside = f'<div class="drawn">{drawn}</div>' if drawn else ""
    size = f" <small>{text(unit)}</small>" if unit else ""
    return (
        f'<section data-k="{text(label)}" class="tile"><h2>{label}</h2><span class="aside">{aside}</span>'
        f'<p class="big {tone}">{text(number)}{size}</p>{beside}{below}<p class="sub">{sub}</p></section>'
    )


def tiles(*each: str) -> str:
    """Return tiles as a row; empty ones are left out. Their number is said first: a page is painted while it comes, and the
    last tile would push the others aside."""
    shown = [*filter(None, each)]
    return f'<div class="tiles of{len(shown)}">{"".join(shown)}</div>'


def figure_tile(figure: DeviceFigure, *, drawn: str = "") -> str:
    """Return a figure of a device as a tile, with a bar up to its limit. `drawn`: its past."""
    row = figure.row
    mark = "ticket" if row.tone is Tone.WARN else ""
    known = row.tone is not Tone.STALE
    part = part_bar(figure.part, mark) if figure.part is not None or not known else ""
    return tile(
        text(row.label[:1].upper() + row.label[1:]),
        row.value,
        sub=text(row.note),
        part=part,
        tone=row.tone,
        drawn=drawn,
    )
