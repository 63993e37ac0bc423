"""A plan of caps as text: each GPU from and to, what it costs, and the commands."""

from __future__ import annotations

import textwrap

from alerts.message.text import clean
from api.power import CapPlan, GpuCap, ModelThroughput
from kilowatch.text.table import columns
from present.units import exact_watts, megahertz, megahertz_per_watt, percent

WIDTH = 80


def cap_lines(answer: CapPlan) -> list[str]:
    """Return the plan, no line wider than `WIDTH`."""
    head = f"{clean(answer.circuit)}  may draw {exact_watts(answer.from_watts)}"
    if not answer.caps and answer.met:
        lines = [f"{head}, below {exact_watts(answer.below_watts)}: no cap is needed"]
    else:
        lines = [f"{head}; with these caps {exact_watts(answer.to_watts)}"]
        if answer.met is False:
            lines.append(
                f"    caps alone are not enough: {exact_watts(answer.over_watts)} too much are left"
            )
    lines += columns([_row(cap) for cap in answer.caps], width=WIDTH)
    if answer.caps:
        lines.append(f"throughput of all GPUs here: {_loss(answer.throughput_loss)}")
    for model in answer.throughput:
        lines += _model(model)
    for notice in answer.notices:
        lines += textwrap.wrap(f"note: {clean(notice)}", WIDTH, subsequent_indent="    ")
    if answer.commands:
        lines.append("nothing was applied; the commands, each on its node:")
        lines += [f"    {clean(command)}" for command in answer.commands]
    return lines


def _row(cap: GpuCap) -> tuple[str, ...]:
    floor = (
        "floor not known" if cap.floor_watts is None else f"floor {exact_watts(cap.floor_watts)}"
    )
    now = "" if cap.watts_now is None else f"draws {exact_watts(cap.watts_now)}"
    return (
        f"{cap.node}", f"GPU {cap.index}", exact_watts(cap.from_watts), f"to {exact_watts(cap.to_watts)}",
        floor, now, _loss(cap.throughput_loss), clean(cap.job),
    )  # fmt: skip


def _loss(loss: float | None) -> str:
    if loss is None:
        return "not known"
    return "costs nothing" if loss == 0 else f"-{percent(loss, 1)}"


def _model(model: ModelThroughput) -> list[str]:
    points = ", ".join(
        f"{megahertz(point.sm_clock_hertz)} at {exact_watts(point.watts)} ({megahertz_per_watt(point.hertz_per_watt)})"
        for point in model.points
    )
    return textwrap.wrap(f"{clean(model.model)}: {points}", WIDTH, subsequent_indent="    ")
