"""Fuse-links: BS 1362 of British plugs, and gG of IEC 60269.

The standards give gates: currents at which a link must still be whole after a time, and currents at which
it must have melted. The earliest edge passes the former, the latest edge the latter. Between two gates the
earliest edge falls as a straight line on logarithmic paper; the latest one falls in steps, because only the
gates are promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from power.devices.band import Band, Edge, Law, between, unknown
from present.units import quoted

BS1362_SOURCE = (
    "BS 1362: 1.6 times the rating holds 30 minutes, 1.9 melts within 30 minutes; 13 A: 1 to 400 s at 30 A,"
    " 0.1 to 20 s at 50 A, 0.01 to 0.2 s at 100 A; 3 A: 0.02 to 80 s at 9 A, below 0.1 s at 20 A, below"
    " 0.03 s at 30 A"
)
GG_SOURCE = (
    "IEC 60269-1, gates of gG: 1.25 times the rating holds and 1.6 melts within 1 h to 63 A, 2 h to 160 A,"
    " 3 h to 400 A, 4 h above; and the table of currents at 10, 5 and 0.1 s"
)


@dataclass(frozen=True, slots=True)
class Gates:
    """The gates of one gG rating, amps."""

    holds_10_s: float
    melts_5_s: float
    holds_100_ms: float
    melts_100_ms: float
    earliest_fast: float
    """Time constant with which the earliest edge passes `holds_10_s`."""
    latest_fast: float
    """Time constant with which the latest edge passes `melts_5_s`."""


GG = {
    16: Gates(33, 65, 85, 150, 16.7, 22.1),
    20: Gates(42, 85, 110, 200, 17.5, 24.4),
    25: Gates(52, 110, 150, 260, 17.1, 26.4),
    32: Gates(75, 150, 200, 350, 23.3, 30.4),
    40: Gates(95, 190, 260, 450, 24.1, 31.2),
    50: Gates(125, 250, 350, 610, 27.3, 35.0),
    63: Gates(160, 320, 450, 820, 28.4, 36.2),
    80: Gates(215, 425, 610, 1100, 32.4, 39.6),
    100: Gates(290, 580, 820, 1450, 38.7, 47.7),
    125: Gates(355, 715, 1100, 1910, 36.9, 46.4),
    160: Gates(460, 950, 1450, 2590, 37.9, 50.2),
    200: Gates(610, 1250, 1910, 3420, 43.3, 55.8),
    250: Gates(750, 1650, 2590, 4500, 41.7, 62.5),
    315: Gates(1050, 2200, 3420, 6000, 52.8, 70.4),
    400: Gates(1420, 2840, 4500, 8060, 60.6, 72.8),
    500: Gates(1780, 3800, 6000, 10600, 61.0, 83.7),
    630: Gates(2200, 5100, 8060, 14140, 58.5, 95.4),
    800: Gates(3060, 7000, 10600, 19000, 71.2, 112.1),
    1000: Gates(4000, 9500, 14140, 24000, 78.4, 132.8),
    1250: Gates(5000, 13000, 19000, 35000, 78.4, 159.9),
}


def gg_hours(rated_amps: float) -> int:
    """Return the conventional time of a gG fuse-link in hours."""
    return 1 if rated_amps <= 63 else 2 if rated_amps <= 160 else 3 if rated_amps <= 400 else 4


def gg_band(rated_amps: float) -> Band:
    """Return the band of a gG fuse-link of a standard rating from 16 to 1,250 A."""
    gates = GG.get(int(rated_amps)) if rated_amps == int(rated_amps) else None
    if gates is None:
        return unknown(
            f"no gates of gG are known for {quoted(rated_amps, 'A')}; those of {min(GG)} to {quoted(max(GG), 'A')} are"
        )
    hours = gg_hours(rated_amps)
    holds, steep = gates.holds_10_s / rated_amps, gates.holds_100_ms / gates.holds_10_s
    earliest = Edge(1.2, gates.earliest_fast, 3600.0 * hours, (Law(holds, 10.0, log(100) / log(steep)),))
    latest = Edge(
        1.59,
        gates.latest_fast,
        1080.0 * hours,
        (Law(gates.melts_5_s / rated_amps, 5.0), Law(gates.melts_100_ms / rated_amps, 0.1)),
    )
    return Band(rated_amps, earliest, between(earliest, latest), latest)


_THIRTEEN_EARLIEST = Edge(1.55, 1.087, 1300, (Law(30 / 13, 1.0, 4.507),))
_THIRTEEN_LATEST = Edge(1.885, 313.3, 568, (Law(50 / 13, 20.0), Law(100 / 13, 0.2)))
_THREE_EARLIEST = Edge(1.55, 0.0454, 1300, (Law(3.0, 0.02, 2.0),))
_THREE_LATEST = Edge(1.885, 121.5, 568, (Law(20 / 3, 0.1), Law(10.0, 0.03)))
_BS1362 = {
    13.0: Band(13, _THIRTEEN_EARLIEST, between(_THIRTEEN_EARLIEST, _THIRTEEN_LATEST), _THIRTEEN_LATEST),
    3.0: Band(3, _THREE_EARLIEST, between(_THREE_EARLIEST, _THREE_LATEST), _THREE_LATEST),
}


def bs1362_band(rated_amps: float) -> Band:
    """Return the band of a plug's fuse; the standard fixes the times of 3 A and 13 A only."""
    return _BS1362.get(rated_amps) or unknown(
        f"BS 1362 fixes trip times for 3 A and 13 A only, not for {quoted(rated_amps, 'A')}"
    )
