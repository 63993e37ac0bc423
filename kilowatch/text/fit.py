"""Places for some machines as text: what is left in normal state and after the worst loss."""

from __future__ import annotations

import textwrap

from alerts.message.text import clean
from api.power import FitPlace, FitResult, FitRoom
from present.units import amperes, exact_watts

WIDTH = 80
_FITS = {True: "fits", False: "does not fit", None: "not known"}


def fit_lines(answer: FitResult) -> list[str]:
    """Return the places, the best first, no line wider than `WIDTH`."""
    cords = "1 cord" if answer.feeds == 1 else f"{answer.feeds} cords each"
    each = "" if answer.machine_watts is None else f", {exact_watts(answer.machine_watts)} each"
    head = f"{answer.count} x {clean(answer.what)}{each}, {cords}: {answer.compared:,} places compared"
    lines = [head]
    for place in answer.places:
        lines += _place(place)
    if answer.count > 1 and not any(place.fits for place in answer.places):
        lines += _spread(answer)
    for notice in answer.notices:
        lines += textwrap.wrap(f"note: {clean(notice)}", WIDTH, subsequent_indent="    ")
    return lines


def _spread(answer: FitResult) -> list[str]:
    placed = sum(one.count for one in answer.spread)
    if not placed:
        return []
    head = (
        "apart from each other all fit"
        if placed == answer.count
        else f"apart from each other {placed} of {answer.count} fit"
    )
    where = ", ".join(f"{one.count} on {clean(' + '.join(one.feeds))}" for one in answer.spread)
    return textwrap.wrap(f"{head}: {where}", WIDTH, subsequent_indent="    ", break_on_hyphens=False)


def _place(place: FitPlace) -> list[str]:
    takes = "" if place.takes is None else f"; it takes {place.takes:,} in all"
    lines = [f"{clean(' + '.join(place.feeds))}: {_FITS[place.fits]}{takes}"]
    if place.fits is None:
        lines.append("    a node on it has an unknown draw, which is not counted below")
    lines.append(f"    now         {_room(place.normal)}")
    after = place.after_loss
    when = "" if after.lost is None else f", {clean(after.lost)} lost"
    lines.append(f"    after loss  {_room(after)}{when}")
    if len(place.feeds) > 1 and place.lost_with is not None:
        lines.append(f"    not independent: all of its cords are lost with {clean(place.lost_with)}")
    return lines


def _room(room: FitRoom) -> str:
    if room.watts is None or room.limit is None:
        return "no known limit"
    amps = "" if room.amps is None else f", {amperes(abs(room.amps))}"
    left = "left" if room.watts >= 0 else "too much"
    return f"{exact_watts(abs(room.watts))}{amps} {left} by the {room.limit} of {clean(room.where or '')}"
