"""A what-if in one line: whether it holds, and by how much; by where it is tightest. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from api.power import CapPlan, CircuitPlan, LimitPlan, NodePlan, PlanResult
from present.circuit.outlook import MAY_TRIP, trip_words
from present.circuit.rules import WORDS
from present.units import amperes, exact_watts, percent
from telemetry.text import counted, estimated_duration

OVERLOADS = frozenset({"E02", "E03", "E04", "E05"})
"""Rules that say that a circuit does not bear its load."""
AFTER_A_LOSS = "E08"


class PlanVerdict(NamedTuple):
    """The answer to "does it hold?"."""

    holds: bool | None
    """None: a load is not known, and what is known holds."""
    text: str
    """Sentence of the answer: `No: 24.3 A on a circuit that carries 16 A for hours; it may trip after 81 s`."""


def verdict(plan: PlanResult) -> PlanVerdict:
    """Return whether a plan holds. What is certainly too much outweighs what is not known."""
    faults = list(_faults(plan))
    unknown = f"the draw of {_some(plan.unknown)} is not known" if plan.unknown else ""
    if faults:
        more = len(faults) - 1
        others = f"; {counted(more, 'more fault')} below" if more else ""
        added = f"; {unknown} and comes on top" if unknown else ""
        return PlanVerdict(False, f"No: {faults[0]}{others}{added}")
    if unknown:
        return PlanVerdict(None, f"Can't say: {unknown}")
    rated = [one for one in [*plan.panels, *plan.circuits] if one.continuous_amps and not one.lost]
    if not rated:
        return PlanVerdict(None, "Can't say: no circuit with a known breaker is in it")
    return PlanVerdict(True, f"Yes: {_tightest(max(rated, key=_share), alone=_alone(plan))}")


def cap_verdict(plan: CapPlan, unknown: list[str]) -> PlanVerdict:
    """Return whether the caps of a plan are enough, and whether that is sure. `unknown`: nodes of unknown draw."""
    asked = exact_watts(plan.below_watts)
    if plan.margin_watts:
        asked += f" less the margin of {exact_watts(plan.margin_watts)}"
    added = f"; the draw of {_some(unknown)} is not known and comes on top" if unknown else ""
    if plan.over_watts:
        return PlanVerdict(
            False, f"No: caps alone are not enough, {exact_watts(plan.over_watts)} are left above {asked}{added}"
        )
    if unknown:
        return PlanVerdict(None, f"Can't say: the draw of {_some(unknown)} is not known")
    left = max(0.0, plan.below_watts - plan.to_watts)
    what = "met with margin" if plan.with_margin else "met within the model's error only"
    return PlanVerdict(
        True,
        f"Yes, {what}: {exact_watts(plan.to_watts)} ± {exact_watts(plan.sigma_watts)}, {exact_watts(left)} below {exact_watts(plan.below_watts)}",
    )


def _faults(plan: PlanResult) -> Iterator[str]:
    """Yield what does not hold, the soonest to trip first, then what a loss would do."""
    alone = _alone(plan)
    circuits = [*plan.circuits, *plan.panels]
    over = [one for one in circuits if OVERLOADS & set(one.alerts)]
    for one in sorted(over, key=lambda one: (_trips_in(one), -_share(one))):
        yield _overload(one, alone=alone)
    for one in circuits:
        if one.neutral_amps and one.rated_amps and one.neutral_amps > one.rated_amps:
            yield f"{amperes(one.neutral_amps)} on the neutral of {one.id}, whose breaker has {amperes(one.rated_amps)}"
    for text in plan.overloads:  # notices, each of a place in the settings: of a circuit alone the name says nothing
        fault = text.removeprefix("nodes.").replace(": it ", " ", 1)
        yield fault.replace(f" into {circuits[0].id},", ",") if alone else fault
    for limit in plan.limits:
        if limit.load_ratio > 1:
            yield f"{limit.id} is loaded with {percent(limit.load_ratio)} of its rating"
    for budget in plan.budgets:
        if budget.limit_kw is not None and budget.kw > budget.limit_kw:
            yield f"{exact_watts(1000 * budget.kw)} on the budget {budget.id} of {exact_watts(1000 * budget.limit_kw)}"
    for node in plan.nodes:
        if text := _starved(node):
            yield text
    for one in circuits:
        if AFTER_A_LOSS in one.alerts:
            yield _after_loss(one)
    for limit in plan.limits:
        if limit.load_ratio <= 1 < (limit.survivor_ratio or 0):
            yield _limit_after_loss(limit)


def _overload(one: CircuitPlan, *, alone: bool) -> str:
    if not {"E02", "E03", "E04"} & set(one.alerts):
        return f"on {_name(one, alone=alone)} {WORDS['E05']}"
    earliest = one.trip_seconds.get("earliest")
    trip = f"it {trip_words(known=one.trip_known)}" if one.trip_known else trip_words(known=False)
    if earliest is not None:
        trip = f"it {MAY_TRIP} {'at once' if earliest < 1 else f'after {estimated_duration(earliest)}'}"
    load, bears = amperes(_highest(one)), amperes(one.continuous_amps)
    load = f"just over {load}" if load == bears else load
    return f"{load} on {_limited(one, alone=alone)}; {trip}"


def _tightest(one: CircuitPlan, *, alone: bool) -> str:
    """Return what a circuit has left, after the worst loss where that leaves less."""
    bears, most = one.continuous_amps or 0.0, _most(one)
    left = f"{amperes(bears - most)} are left"
    left = f"only {left}" if "E01" in one.alerts else left
    if alone:
        return f"{amperes(most)} on {_limited(one, alone=True)}; {left}"
    lost = f" once {one.survivor_loss or 'another element'} is lost" if most > _highest(one) else ""
    return f"everything holds; the tightest, {one.id}, carries {amperes(most)} of {amperes(bears)}{lost}: {left}"


def _limited(one: CircuitPlan, *, alone: bool) -> str:
    """Return a circuit with what it bears: `a circuit that carries 16 A for hours`."""
    which = "that" if alone else "which"
    comma = "" if alone else ","
    return f"{_name(one, alone=alone)}{comma} {which} carries {amperes(one.continuous_amps)} for hours"


def _name(one: CircuitPlan, *, alone: bool) -> str:
    return "a circuit" if alone else one.id


def _after_loss(one: CircuitPlan) -> str:
    lost = one.survivor_loss or "another element"
    if one.survivor_amps is not None and one.survivor_amps > (one.continuous_amps or 0.0):
        return f"{amperes(one.survivor_amps)} on {_limited(one, alone=False)}, once {lost} is lost"
    return f"what feeds {one.id} is overloaded once {lost} is lost"


def _limit_after_loss(limit: LimitPlan) -> str:
    lost = limit.survivor_loss or "another element"
    return f"{limit.id} is loaded with {percent(limit.survivor_ratio)} of its rating once {lost} is lost"


def _starved(node: NodePlan) -> str:
    if node.dark:
        return f"{node.id} loses power"
    if (node.supply_load or 0) > 1:
        return f"{percent(node.supply_load)} on the supplies of {node.id} that are left"
    return ""


def _highest(one: CircuitPlan) -> float:
    return max(one.amps.values(), default=0.0)


def _most(one: CircuitPlan) -> float:
    """Return its amps after the worst loss, where that puts more on it."""
    return max(_highest(one), one.survivor_amps or 0.0)


def _share(one: CircuitPlan) -> float:
    return _most(one) / one.continuous_amps if one.continuous_amps else 0.0


def _trips_in(one: CircuitPlan) -> float:
    earliest = one.trip_seconds.get("earliest")
    return float("inf") if earliest is None else earliest


def _alone(plan: PlanResult) -> bool:
    return len(plan.circuits) == 1 and not plan.panels


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
