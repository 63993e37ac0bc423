"""A report as text: one cluster, or two side by side."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from alerts.message.text import clean
from api.report import Report, Upkeep
from kilowatch.text.quality import overall_line
from present.bill import upkeep_rows
from present.units import exact_money, exact_watts, gigabytes, kilowatt_hours, money, percent
from telemetry.text import duration

LABEL = 13
CELL = 42


def report_lines(reports: Mapping[str, Report]) -> list[str]:
    """Return the clusters side by side, a column each, under their names."""
    names = [clean(name) for name in reports]
    table = [_rows(one) for one in reports.values()]
    lines = _line("", names)
    for label in table[0]:
        cells = [rows[label] for rows in table]
        if any(cells):
            lines += _line(label, [cell or "-" for cell in cells])
    return lines


def cheaper(names: Sequence[str], times: float | None) -> str | None:
    """Return which cluster costs less, and by how much; None when a price is not known."""
    if times is None or times <= 0:
        return None
    first, other = names
    if times < 1:
        first, other, times = other, first, 1 / times
    return (
        f"{other} is {times:.0f} times cheaper than {first}"
        if times >= 10
        else f"{other} is {times:.1f} times cheaper than {first}"
    )


def _line(label: str, cells: Sequence[str]) -> list[str]:
    wrapped = [textwrap.wrap(cell, CELL) or [""] for cell in cells]
    lines = []
    for number in range(max(map(len, wrapped))):
        row = [cell[number] if number < len(cell) else "" for cell in wrapped]
        head = (label if number == 0 else "").ljust(LABEL)
        lines.append((head + "  ".join(text.ljust(CELL) for text in row)).rstrip())
    return lines


def _rows(one: Report) -> dict[str, str]:
    gpus = ", ".join(f"{count} x {clean(model)}" for model, count in one.gpus.items())
    return {
        "GPUs": f"{gpus or 'none'}; {'mixed' if one.mixed else 'one kind'}",
        "memory": f"{gigabytes(one.memory_gb)} {pools_text(one.pools)}",
        "verdict": f"a {one.verdict}" + (" of cards" if one.verdict == "pile" else ""),
        "because": one.verdict_reason,
        "nodes": ", ".join(f"{count} {clean(role)}" for role, count in one.roles.items()),
        "draw": _draw(one),
        "at the wall": "" if one.wall_watts is None else exact_watts(one.wall_watts),
        "limits allow": "" if one.committed_watts is None else exact_watts(one.committed_watts),
        "homes": "" if one.homes is None else f"{one.homes:.2f} average homes of {exact_watts(one.home_watts)}",
        "electric car": ""
        if one.ev_hours is None
        else f"{duration(3600 * one.ev_hours)} to drain {kilowatt_hours(one.ev_kwh)}",
        "a month": _upkeep(one.month, one.currency),
        "measured": _upkeep(one.measured, one.currency),
        "utilisation": "" if one.utilisation is None else percent(one.utilisation),
        "idle": _idle(one),
        "alerts": _alerts(one),
        "price": _price(one),
        "rental": "" if one.prices.hourly is None else f"{exact_money(one.prices.hourly, clean(one.currency))} an hour",
    }


def pools_text(pools: Sequence[tuple[int, float]]) -> str:
    """Return `as 2 NVLink pools of 640 GB`, or `as four separate pools of 32 GB`."""
    found = []
    for (gpus, gb), count in Counter(pools).items():
        kind = "NVLink" if gpus > 1 else "separate"
        size = f"of {gigabytes(gb)}" + (f" over {gpus} GPUs" if gpus > 1 else "")
        found.append(f"{count} {kind} {'pool' if count == 1 else 'pools'} {size}")
    return f"as {', '.join(found)}" if found else "in no pool"


def _draw(one: Report) -> str:
    if one.sustained_watts is None or one.peak_watts is None:
        return "not known"
    return f"{exact_watts(one.sustained_watts)} sustained, {exact_watts(one.peak_watts)} peak"


def _upkeep(one: Upkeep | None, currency: str) -> str:
    if one is None:
        return ""
    rows = upkeep_rows(one, clean(currency), exact=True)
    return ", ".join(row.value for row in rows if row.value)


def _alerts(one: Report) -> str:
    return "" if one.alerts is None else overall_line(one.alerts)


def _idle(one: Report) -> str:
    if one.idle is None:
        return ""
    cost = (
        "" if one.idle.cost is None else f", {exact_money(one.idle.cost, clean(one.currency))} ({one.idle.cost_basis})"
    )
    return f"{one.idle.gpu_hours:,.4g} GPU hours, {percent(one.idle.ratio)} of all{cost}"


def _price(one: Report) -> str:
    known = one.prices
    gpus, hosts, total = (
        None if each is None else money(each, "USD") for each in (known.gpus, known.hosts, known.total)
    )
    if known.gpus is not None and known.hosts is not None and known.total == known.gpus + known.hosts:
        return f"{total}: {gpus} of GPUs + {hosts} around them"
    if total is not None:
        return total
    return "not known" if gpus is None else f"not known; the GPUs {gpus}"
