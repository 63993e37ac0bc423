"""Effects of faults on a GPU over time: spans of constant effect, with running sums.

Within a span a GPU's power is a constant share of its job's demand, so energy and all other
counters keep their closed form: the sum at the span's start, plus the share of the job's sum since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from collector.simulated.faults import SILENT, FaultKind, SimulatedFault

WARM_UP = 60
"""Seconds in which a thermal fault heats a GPU up to the hardware's limit."""
_SOFT = 54  # by then it is above the software's limit
STALL = 120
"""Seconds that a job waits for a lost peer before it goes on without it."""
_COOLING = 90


@dataclass(frozen=True, slots=True)
class FaultEffect:
    """Effect of a fault on a GPU while it lasts. Effects of several faults are joined."""

    power: float = 1.0
    """Share of the power that the job demands."""
    clock: float = 1.0
    """Share of the SM clock."""
    lost: bool = False
    hung: bool = False
    silent: bool = False
    hot: bool = False
    """Whether hardware limits the clocks because of heat."""
    warm: bool = False
    """Whether software does."""
    power_brake: bool = False
    slow_driver: bool = False

    def join(self, other: FaultEffect) -> FaultEffect:
        """Return the joint effect of both."""
        return FaultEffect(
            self.power * other.power,
            min(self.clock, other.clock),
            self.lost or other.lost,
            self.hung or other.hung,
            self.silent or other.silent,
            self.hot or other.hot,
            self.warm or other.warm,
            self.power_brake or other.power_brake,
            self.slow_driver or other.slow_driver,
        )


@dataclass(frozen=True, slots=True)
class EffectSums:
    """Counters since the driver loaded."""

    energy: float = 0.0
    capped: float = 0.0
    warm: float = 0.0
    hot: float = 0.0
    power_brake: float = 0.0


@dataclass(frozen=True, slots=True)
class EffectSpan:
    """Time span with one effect."""

    start: int
    """First second."""
    boot: int
    """First second since the driver loaded, at or before `start`."""
    effect: FaultEffect
    sums: EffectSums
    """Up to the second before `start`."""
    energy_before: float
    """Energy demanded by the job up to the second before `start`, joules."""
    capped_before: int
    power_before: float
    """Share of the power in the span before, from which the temperature still fades."""


@dataclass(frozen=True, slots=True)
class FaultCourse:
    """Spans of a GPU, in order; the first begins when the driver loaded."""

    spans: tuple[EffectSpan, ...]
    starts: tuple[int, ...]
    hot_spans: tuple[tuple[int, int], ...] = ()
    """Start and end of every thermal fault."""
    storms: tuple[tuple[int, int], ...] = ()
    """Start and end of every ECC storm."""
    remaps: tuple[tuple[int, int], ...] = ()
    """Start and end of every time that a row waits for its replacement."""

    def at(self, second: int) -> EffectSpan:
        """Return the span of a second."""
        return self.spans[max(0, bisect_right(self.starts, second) - 1)]

    def heat(self, second: int) -> float:
        """Return how much thermal faults have heated the GPU: 0 not at all, 1 up to the limit."""
        share = 0.0
        for start, end in self.hot_spans:
            if start <= second < end:
                share = max(share, min(1.0, (second - start) / WARM_UP))
            elif second >= end:
                peak = min(1.0, (end - start) / WARM_UP)
                share = max(share, peak * (1.0 - (second - end) / _COOLING))
        return share


def effects(fault: SimulatedFault, node: str, gpu: int, peers: bool) -> list[tuple[int, int, FaultEffect]]:
    """Return the effects of a fault on a GPU: first second, second after the last, effect.

    `peers`: whether the GPU works in one synchronous job with those that the fault hits.
    """
    start, end = fault.start, fault.end
    hit = fault.node == node and fault.gpu in {None, gpu}
    if hit:
        match fault.kind:
            case FaultKind.XID79:
                return [(start, end, FaultEffect(power=0.1, lost=True))]
            case FaultKind.ECC_STORM:
                return [(start, end, FaultEffect(slow_driver=True))]
            case FaultKind.THERMAL:
                return [
                    (start + _SOFT, end, FaultEffect(warm=True)),
                    (start + WARM_UP, end, FaultEffect(power=0.6, clock=0.55, hot=True)),
                ]
            case FaultKind.POWER_BRAKE:
                return [(start, end, FaultEffect(power=0.55, clock=0.5, power_brake=True))]
            case FaultKind.HUNG:
                return [(start, end, FaultEffect(hung=True))]
            case FaultKind.NODE_LOSS | FaultKind.FEED_LOSS:
                return [(start, end, FaultEffect(power=0.0, silent=True))]
            case FaultKind.STRAGGLER:
                return [(start, end, FaultEffect(power=0.92, clock=0.85))]
            case FaultKind.REMAP_PENDING | FaultKind.PORT_DOWN | FaultKind.PORT_SLOW:
                return []
    if peers and (fault.kind is FaultKind.XID79 or fault.kind in SILENT):
        return [(start, min(end, start + STALL), FaultEffect(power=0.4))]
    return []


def course(
    node: str,
    gpu: int,
    boot: int,
    faults: Iterable[tuple[SimulatedFault, bool]],
    energy: Callable[[int], float],
    capped: Callable[[int], int],
) -> FaultCourse:
    """Return the course of a GPU whose driver loaded at second `boot`.

    `faults` are those that could concern it, each with whether the GPU is a peer of its target;
    `energy` and `capped` are the job's sums up to and with a second.
    """
    pieces: list[tuple[int, int, FaultEffect]] = []
    own = []
    for fault, peer in faults:
        pieces += effects(fault, node, gpu, peer)
        if fault.node == node and fault.gpu in {None, gpu}:
            own.append(fault)
    boots = {fault.end for fault in own if fault.kind in SILENT}
    edges = sorted({boot, *(edge for first, last, _ in pieces if last > first for edge in (first, last))})
    spans: list[EffectSpan] = []
    for start in edges:
        effect = FaultEffect()
        for first, last, piece in pieces:
            if first <= start < last:
                effect = effect.join(piece)
        span = EffectSpan(start, boot, effect, EffectSums(), energy(start - 1), capped(start - 1), 1.0)
        if spans:
            before = spans[-1]
            span = replace(
                span,
                boot=start if start in boots else before.boot,
                sums=EffectSums() if start in boots else sums_at(before, start - 1, energy, capped),
                power_before=before.effect.power,
            )
        spans.append(span)
    return FaultCourse(
        tuple(spans),
        tuple(span.start for span in spans),
        *(
            tuple((fault.start, fault.end) for fault in own if fault.kind is kind)
            for kind in (FaultKind.THERMAL, FaultKind.ECC_STORM, FaultKind.REMAP_PENDING)
        ),
    )


def sums_at(span: EffectSpan, second: int, energy: Callable[[int], float], capped: Callable[[int], int]) -> EffectSums:
    """Return the counters at the end of a second of a span."""
    sums, effect = span.sums, span.effect
    elapsed = second - span.start + 1
    full = effect.power >= 0.9
    return EffectSums(
        sums.energy + effect.power * (energy(second) - span.energy_before),
        sums.capped + (capped(second) - span.capped_before if full else 0),
        sums.warm + (elapsed if effect.warm else 0),
        sums.hot + (elapsed if effect.hot else 0),
        sums.power_brake + (elapsed if effect.power_brake else 0),
    )
