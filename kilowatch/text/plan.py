"""A plan as text: whether it holds, every circuit under the supposed load, the rules that fire, and remedies."""

from __future__ import annotations

import textwrap

from alerts.message.text import clean
from api.power import Cap, CircuitPlan, LimitPlan, NodePlan, PlanResult
from kilowatch.text.circuits import rule_text
from kilowatch.text.losses import planned_trip_text
from present.circuit.outlook import ESTIMATE
from present.circuit.rows import limits, pole_amps
from present.units import amperes, at_least, exact_watts, percent, watts
from telemetry.text import estimated_duration

WIDTH = 80


def plan_lines(answer: PlanResult, assumed: str = "") -> list[str]:
    """Return the plan, no line wider than `WIDTH`: the verdict first. `assumed`: what was taken for true unasked."""
    lines = _wrapped(f"{clean(answer.verdict)}.", "    ") if answer.verdict else []
    lines += _wrapped(assumed, "    ")
    partial = bool(answer.unknown)  # somewhere, perhaps behind it
    for circuit in [*answer.panels, *answer.circuits]:
        lines += _circuit(circuit)
    for one in answer.limits:
        lines += _limit(one, partial=partial)
    for node in answer.nodes:
        lines += _node(node)
    for budget in answer.budgets:
        limit = "no limit in kW" if budget.limit_kw is None else watts(1000 * budget.limit_kw)
        load = at_least(watts(1000 * budget.kw), partial=partial)
        lines.append(f"budget {clean(budget.id)}  {load} of {limit}")
        lines += _broken(budget.alerts)
    for notice in answer.notices:
        # A notice about an option is no fault of the configuration.
        head = "note" if notice.startswith("--") else "note (E24)"
        lines += _wrapped(f"{head}: {clean(notice)}", "    ")
    return [*lines, ESTIMATE]


def _circuit(circuit: CircuitPlan) -> list[str]:
    name = clean(circuit.id)
    if circuit.lost:
        return [f"{name}  off, as supposed", *_broken(circuit.alerts)]
    load = at_least(exact_watts(circuit.watts), partial=bool(circuit.unknown))
    head = f"{name}  {load}  {pole_amps(circuit.amps)}{_more(circuit)}; {limits(circuit.rated_amps, circuit.continuous_amps)}"
    lines = [*(_wrapped(head, "    ") if circuit.unknown else [head]), f"    {planned_trip_text(circuit)}"]
    if circuit.survivor_amps is not None:
        loss = "another feed" if circuit.survivor_loss is None else clean(circuit.survivor_loss)
        lines += _wrapped(f"    {amperes(circuit.survivor_amps)} after the loss of {loss}", "        ")
    lines += _broken(circuit.alerts)
    return lines if circuit.cap is None else [*lines, *_cap(circuit.cap)]


def _more(circuit: CircuitPlan) -> str:
    """Return that nodes of unknown draw come on top."""
    if not circuit.unknown:
        return ""
    rest = len(circuit.unknown) - 1
    return f" and what {clean(circuit.unknown[0])}{f' and {rest} more' if rest else ''} may draw"


def _limit(limit: LimitPlan, *, partial: bool) -> list[str]:
    after = ""
    if limit.survivor_ratio is not None and limit.survivor_loss is not None:
        after = f"; {percent(limit.survivor_ratio)} after the loss of {clean(limit.survivor_loss)}"
    load, ratio = (at_least(words, partial=partial) for words in (exact_watts(limit.watts), percent(limit.load_ratio)))
    text = f"{clean(limit.id)}  {load}, {ratio} of its rating{after}"
    if limit.battery_seconds is not None:
        about = "at most" if partial else "about"
        text += f"; new batteries carry it for {about} {estimated_duration(limit.battery_seconds)}"
    return [*_wrapped(text, "    "), *_broken(limit.alerts)]


def _broken(alerts: list[str]) -> list[str]:
    return [f"    {rule_text(rule)}" for rule in alerts]


def _cap(cap: Cap) -> list[str]:
    if cap.reachable:
        return [f"    a cap of {exact_watts(cap.watts_per_gpu)} per GPU clears it"]
    if cap.watts_per_gpu <= 0:
        text = "no cap of the GPUs clears it: the rest alone is too much"
    else:
        text = f"it would take a cap of {exact_watts(cap.watts_per_gpu)} per GPU"
        if cap.floor_watts is not None:
            text += f", below the card's floor of {exact_watts(cap.floor_watts)}"
    lines = [f"    {text}"]
    for way in cap.instead:
        lines += _wrapped(f"    or {way}", "       ")
    return lines


def _node(node: NodePlan) -> list[str]:
    if node.dark:
        return [f"node {clean(node.id)}  loses power: no cord of it is fed"]
    if not node.alerts:
        return []
    load = "" if node.supply_load is None else f"  supplies {percent(node.supply_load)} loaded"
    return [f"node {clean(node.id)}{load}", *_broken(node.alerts)]


def _wrapped(text: str, inside: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=inside, break_on_hyphens=False)
