"""A plan of caps as text: each GPU from and to, what it costs, and the commands."""

from __future__ import annotations

import math
import textwrap

from alerts.message.text import clean
from api.power import CapPlan, GpuCap, ModelThroughput
from kilowatch.text.table import columns
from present.units import exact_watts, megahertz, megahertz_per_watt, percent

WIDTH = 80


def cap_lines(answer: CapPlan) -> list[str]:
    """Return the plan, no line wider than `WIDTH`."""
    lines = _wrapped(f"{clean(answer.verdict)}.")
    head = f"{clean(answer.circuit)}  may draw {exact_watts(answer.from_watts)}"
    if answer.caps:
        lines.append(f"{head}; with these caps {exact_watts(answer.to_watts)}")
    else:
        lines.append(f"{head}: no cap is {'needed' if answer.met else 'possible'}")
    lines += _wrapped(_margin(answer))
    lines += columns([_row(cap) for cap in answer.caps], width=WIDTH)
    if answer.caps:
        lines.append(f"throughput of all GPUs here: {_loss(answer.throughput_loss)}")
    for model in answer.throughput:
        lines += _model(model)
    for notice in answer.notices:
        lines += _wrapped(f"note: {clean(notice)}")
    if answer.commands:
        lines.append("nothing was applied; the commands, each on its node:")
        lines += [f"    {clean(command)}" for command in answer.commands]
    return lines


def _margin(answer: CapPlan) -> str:
    """Return which margin was asked for, and which one the model's error is."""
    asked = (
        f"margin asked for: {exact_watts(answer.margin_watts)}"
        if answer.margin_watts
        else "no margin was asked for, the default"
    )
    if not answer.met or answer.with_margin:
        return asked
    enough = math.ceil(100 * answer.sigma_watts / answer.below_watts) / 100
    return f"{asked}; --margin {percent(enough)} is as large as the model's error"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_on_hyphens=False)


def _row(cap: GpuCap) -> tuple[str, ...]:
    floor = "floor not known" if cap.floor_watts is None else f"floor {exact_watts(cap.floor_watts)}"
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
