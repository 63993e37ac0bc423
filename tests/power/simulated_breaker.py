"""Breakers that are simulated by equations and constants of their own: nothing of kilowatch is imported.

A bimetal and the case around it are a chain: the case is heated by its conductor and heats the bimetal, so
that the bimetal lags behind both. With I the current over the rating,

    case' = (share I^2 - case) / tau_case,    bimetal' = ((1 - share) I^2 + case - bimetal) / tau_bimetal

and a breaker opens when its bimetal reaches the square of its pick-up, or when a current is above its magnetic
threshold. Constants are drawn at random; a draw that fails the tests of its standard, from cold, is no breaker
of that class and is drawn again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
HOUR = 3600.0


@dataclass(frozen=True)
class Standard:
    """Tests of a class, from cold, with what is published of its fastest devices."""

    name: str
    rated_amps: float
    holds: float
    """Ratio that is borne for an hour or more."""
    trips: float
    """Ratio that trips within `hours`."""
    hours: float
    overload: float
    least_seconds: float
    most_seconds: float
    """Least and most time at `overload`."""
    magnetic: tuple[float, float]


STANDARDS = (
    Standard("UL489", 20, 1.05, 1.35, 1, 2.0, 12.5, 120, (5, 10)),
    Standard("UL489", 50, 1.05, 1.35, 1, 2.0, 12.5, 240, (5, 10)),
    Standard("UL489", 100, 1.05, 1.35, 2, 2.0, 12.5, 360, (5, 10)),
    Standard("UL489", 225, 1.05, 1.35, 2, 2.0, 12.5, 600, (5, 10)),
    Standard("UL489", 400, 1.05, 1.35, 2, 2.0, 12.5, 720, (5, 10)),
    Standard("IEC-B", 16, 1.13, 1.45, 1, 2.55, 6.2, 60, (3, 5)),
    Standard("IEC-C", 32, 1.13, 1.45, 1, 2.55, 6.2, 60, (5, 10)),
    Standard("IEC-D", 63, 1.13, 1.45, 1, 2.55, 6.2, 120, (10, 20)),
    Standard("IEC-60947", 63, 1.05, 1.30, 1, 2.0, 12.5, 120, (5, 12)),
    Standard("IEC-K", 16, 1.05, 1.30, 1, 2.0, 12.5, 120, (8, 14)),
    Standard("IEC-Z", 16, 1.05, 1.30, 1, 2.0, 12.5, 120, (2, 3.6)),
    Standard("JIS", 20, 1.02, 1.25, 1, 2.0, 12.5, 120, (5, 12)),
    Standard("JIS", 225, 1.02, 1.25, 2, 2.0, 12.5, 480, (5, 12)),
)


@dataclass
class Breakers:
    """Many breakers at once; each array has one entry a breaker."""

    standard: npt.NDArray[np.int64]
    """Index in `STANDARDS`."""
    pickup: Floats
    share: Floats
    tau_bimetal: Floats
    tau_case: Floats
    magnetic: Floats
    bimetal: Floats
    case: Floats

    def warm(self, ratio: Floats) -> None:
        """Let hours pass at `ratio`."""
        self.bimetal, self.case = ratio**2, self.share * ratio**2

    def advance(self, ratio: Floats, seconds: Floats) -> None:
        """Let `seconds` pass at `ratio`."""
        self.bimetal, self.case = self._after(ratio, seconds)

    def trip_after(self, ratio: Floats, seconds: Floats, grid: int = 4000) -> Floats:
        """Return when each opens within `seconds` at `ratio`; inf where it does not. `advance` is not called.

        Times are searched on a grid that is finest at the start.
        """
        found = np.where(ratio >= self.magnetic, 0.02, np.inf)
        fractions = np.linspace(0, 1, grid) ** 3
        before = np.zeros(len(ratio))
        for fraction in fractions:
            at = fraction * seconds
            bimetal, _ = self._after(ratio, at)
            hot = (bimetal >= self.pickup**2) & ~np.isfinite(found)
            found = np.where(hot, 0.5 * (before + at), found)
            before = at
        return found

    def _after(self, ratio: Floats, seconds: Floats) -> tuple[Floats, Floats]:
        square = ratio**2
        slow = np.exp(-seconds / self.tau_case)
        fast = np.exp(-seconds / self.tau_bimetal)
        case = self.share * square + (self.case - self.share * square) * slow
        lag = self.tau_case / (self.tau_case - self.tau_bimetal)
        of_case = (self.case - self.share * square) * lag
        bimetal = square + of_case * slow + (self.bimetal - square - of_case) * fast
        return bimetal, case


def draw(count: int, random: np.random.Generator) -> Breakers:
    """Return breakers of all standards that pass the tests of their own."""
    kept: list[Floats] = []
    total = 0
    while total < count:
        number = random.integers(len(STANDARDS), size=2000)
        of = [STANDARDS[n] for n in number]

        def each(name: str, of: list[Standard] = of) -> Floats:
            return np.array([getattr(one, name) for one in of], dtype=float)

        low, high = np.array([one.magnetic for one in of]).T
        made = Breakers(
            number,
            pickup=random.uniform(each("holds"), each("trips")),
            share=random.uniform(0.05, 0.3, 2000),
            tau_bimetal=np.exp(random.uniform(np.log(12), np.log(900), 2000)),
            tau_case=random.uniform(950, 2400, 2000),
            magnetic=random.uniform(low, high),
            bimetal=np.zeros(2000),
            case=np.zeros(2000),
        )
        made.tau_bimetal = np.minimum(made.tau_bimetal, 0.9 * made.tau_case)
        within = each("hours") * HOUR
        slow = made.trip_after(each("trips"), within, 400)
        test = np.where(made.magnetic > each("overload"), each("overload"), np.nan)
        # Z opens at twice its rating by its magnet: its heat is tested as that of others.
        made.magnetic, threshold = np.full(2000, np.inf), made.magnetic
        fast = made.trip_after(each("overload"), each("most_seconds") * 1.01, 800)
        made.magnetic = threshold
        good = np.isfinite(slow) & (fast >= each("least_seconds")) & (fast <= each("most_seconds"))
        good &= np.isfinite(test) | (made.magnetic <= each("overload"))
        kept.append(
            np.array([made.standard, made.pickup, made.share, made.tau_bimetal, made.tau_case, made.magnetic])[:, good]
        )
        total += int(good.sum())
    standard, pickup, share, bimetal, case, magnetic = np.concatenate(kept, axis=1)[:, :count]
    return Breakers(standard.astype(np.int64), pickup, share, bimetal, case, magnetic, np.zeros(count), np.zeros(count))
