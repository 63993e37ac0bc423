"""Bars: of a load against its limits, always up to 130% of the breaker, so that all bars of all pages line up;
and of a part of a whole."""

from __future__ import annotations

from collections.abc import Iterator

from aggregator.web.markup import Html, unseen
from api.power import CircuitState
from present.circuit.figures import BAR_TOP, assumed_share, bar_marks, over_continuous, share
from present.units import percent

LOAD_AXIS = Html(
    '<svg class="axis" aria-hidden="true"><text x="0" y="10">0</text><text x="61%" y="10" text-anchor="end">80</text>'
    '<text x="76.9%" y="10" text-anchor="middle">100%</text></svg>'
)
"""Scale of such bars."""
LOAD_HEAD = Html(f"{unseen('share of the rating')}{LOAD_AXIS}")
"""Head of a column of them."""


def load_bar(circuit: CircuitState, mark: str = "", *, tall: bool = False, key: str = "") -> str:
    """Return the load over the rating as a bar. `mark`: the severity of its worst alert; `key`: by which it is updated by
    itself."""
    its = f' data-k="{key}"' if key else ""
    inside = load_parts(circuit, mark, exact=tall)
    return f'<svg{its} class="bar{" tall" if tall else ""}" aria-hidden="true">{inside}</svg>'


def load_parts(circuit: CircuitState, mark: str = "", *, exact: bool = False) -> str:
    """Return what such a bar is drawn of, for an `svg` of any size: with marks at the continuous limit and at the
    rating, hatched where the load is not known, and in the part that is assumed. Whole percent of the rating, as they are
    written beside it, unless `exact`: one of a list is hardly wider, and need not be drawn anew for less."""
    ratio = share(circuit)
    if circuit.rated_amps is None or ratio is None:
        parts = f'<rect class="unknown" width="{_place(1.0)}" height="100%"/>'
    else:
        parts = "".join(_filled(circuit, ratio, mark, 4 if exact else 2))
    marks = "".join(
        f'<line class="{kind}" x1="{_place(at)}" x2="{_place(at)}" y1="-2" y2="100%"/>'
        for kind, at in bar_marks(circuit)
    )
    return (
        '<rect class="ground" width="100%" height="100%"/>'
        f'<rect class="zone" x="{_place(1.0)}" width="{_place(BAR_TOP - 1.0)}" height="100%"/>{parts}{marks}'
    )


def part_bar(part: float | None, mark: str = "") -> str:
    """Return a part of a whole, or of a limit, 0 to 1, as a bar; hatched where it is not known. `mark`: the severity of
    what is wrong with it."""
    if part is None:
        inside = '<rect class="unknown" width="100%" height="100%"/>'
    else:
        inside = f'<rect class="fill {mark}" width="{percent(min(1.0, max(0.0, part)), 1)}" height="100%"/>'
    return f'<svg class="bar" aria-hidden="true"><rect class="ground" width="100%" height="100%"/>{inside}</svg>'


def _filled(circuit: CircuitState, ratio: float, mark: str, digits: int) -> Iterator[str]:
    colour = mark or ("page" if ratio > 1 else "ticket" if over_continuous(circuit) else "")
    ratio, guess = round(ratio, digits), round(assumed_share(circuit), digits)
    yield f'<rect class="fill {colour}" width="{_place(ratio - guess)}" height="100%"/>'
    if guess:
        yield f'<rect class="assumed" x="{_place(ratio - guess)}" width="{_place(min(BAR_TOP, ratio) - ratio + guess)}" height="100%"/>'


def _place(ratio: float) -> str:
    return percent(min(BAR_TOP, max(0.0, ratio)) / BAR_TOP, 1)
