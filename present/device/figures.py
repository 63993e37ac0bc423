"""The figures of a node and of a GPU that its page shows first: each with its share of a limit, and what the other GPUs
of the node do. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from api.device import GpuReply, NodePageReply
from present.device.gpu import CLOCK_LIMITS, POWER_CAP, Read, clock_limit_row, gpu_name
from present.device.reading import plain
from present.device.wall import contradiction
from present.row import FactRow, Tone, Wording
from present.units import at_least, celsius, exact_watts, gibibytes, megahertz, percent, watts
from telemetry.text import counted

UNKNOWN = "?"
"""Value of a figure that is not known."""
POWER, POWER_LIMIT = "gpu_power_watts", "gpu_power_limit_watts"
HEAT, HEAT_LIMIT = "gpu_temperature_celsius", "gpu_temperature_slowdown_celsius"
USE = "gpu_utilization_ratio"
MEMORY, MEMORY_SIZE = "gpu_memory_used_bytes", "gpu_memory_total_bytes"
CLOCK, CLOCK_LIMIT = "gpu_sm_clock_hertz", "gpu_sm_clock_max_hertz"
WALL = "node_wall_power_watts"
MARGIN, LEAST_MARGIN = "gpu_thermal_margin_celsius", "gpu_thermal_margin_slowdown_celsius"
LIMITS = {POWER: POWER_LIMIT, MEMORY: MEMORY_SIZE, CLOCK: CLOCK_LIMIT}
"""Metrics whose bar ends at the reading of another."""
WORDS: Mapping[str, Wording] = {POWER: exact_watts, HEAT: celsius, USE: percent, MEMORY: gibibytes, CLOCK: megahertz}
"""Wording of a reading, by metric."""


class DeviceFigure(NamedTuple):
    """A figure with its bar."""

    row: FactRow
    part: float | None = None
    """Share of its limit, for a bar; None where either is not known."""


def limit_of(metric: str, read: Read) -> float | None:
    """Return where the bar of a reading ends; None where that is not known. Newer boards say how far they are from the
    temperature at which they are slowed, and not which it is."""
    if metric == USE:
        return 1.0
    if metric != HEAT:
        return read(LIMITS[metric])
    heat, margin, least = read(HEAT), read(MARGIN), read(LEAST_MARGIN)
    if heat is not None and margin is not None and least is not None:
        return heat + margin - least
    return read(HEAT_LIMIT)


def share_of_limit(metric: str, read: Read) -> float | None:
    """Return a reading over its limit; of a ratio itself; None where either is not known."""
    value = read(metric)
    limit = limit_of(metric, read)
    return None if value is None or not limit else value / limit


def others(metric: str, values: Sequence[float]) -> str:
    """Return what the other GPUs of a node do: `7 others: 64 to 71 °C`; "" where nothing is known of them."""
    if not values:
        return ""
    low, high = (WORDS[metric](one) for one in (min(values), max(values)))
    span = low if low == high else f"{low.removesuffix(low.partition(' ')[2]).rstrip()} to {high}"
    return f"{counted(len(values), 'other')}: {span}"


def slowed(read: Read) -> str:
    """Return why speed is taken from a GPU for a fault, the worst first; "" where its clocks are free, or limited by its
    power limit alone."""
    return ", ".join(word for metric, word in CLOCK_LIMITS.items() if word != POWER_CAP and read(metric))


def too_hot(read: Read) -> bool:
    """Return whether a GPU has reached the temperature at which it is slowed."""
    part = share_of_limit(HEAT, read)
    return part is not None and part >= 1.0


def readings_of(gpus: Sequence[GpuReply], metric: str, but: str = "") -> list[float]:
    """Return the readings of GPUs that have one, without that of one UUID."""
    return [one.readings[metric] for one in gpus if metric in one.readings and one.gpu.uuid != but]


def versus(metric: str, read: Read, peers: Sequence[GpuReply]) -> str:
    """Return a reading beside those of the other GPUs: `88 °C; 7 others: 64 to 71 °C`."""
    value = read(metric)
    own = "not known" if value is None else WORDS[metric](value)
    return _joined(own, others(metric, readings_of(peers, metric)))


def node_figures(page: NodePageReply) -> Iterator[DeviceFigure]:
    """Yield the figures of a node."""
    gpus = page.gpus
    yield _wall(page)
    if not gpus:
        return
    yield _hottest(gpus)
    yield _use(gpus)
    yield _memory(gpus)
    if any(one.holders is not None for one in gpus):
        yield _held(gpus)


def _partly(known: int, gpus: Sequence[GpuReply]) -> str:
    return "" if known == len(gpus) else f"{known:,} of {counted(len(gpus), 'GPU')} read"


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _wall(page: NodePageReply) -> DeviceFigure:
    wall, its = page.readings.get(WALL), readings_of(page.gpus, POWER)
    at_gpus = at_least(watts(sum(its)), partial=len(its) < len(page.gpus)) if its else ""
    if against := contradiction(page.power):
        return DeviceFigure(FactRow("at the wall", watts(wall), Tone.WARN, note=against))
    if wall is not None:
        return DeviceFigure(FactRow("at the wall", watts(wall), note=f"{at_gpus} at its GPUs" if at_gpus else ""))
    if its:
        note = _joined("at the wall it is not read", _partly(len(its), page.gpus))
        return DeviceFigure(FactRow("at its GPUs", at_gpus, note=note))
    reason = plain(page.gaps.get(WALL, ""))
    return DeviceFigure(FactRow("at the wall", UNKNOWN, Tone.STALE, note=reason or "not read"))


def _hottest(gpus: Sequence[GpuReply]) -> DeviceFigure:
    known = [one for one in gpus if HEAT in one.readings]
    if not known:
        return DeviceFigure(FactRow("hottest GPU", UNKNOWN, Tone.STALE, note="no GPU reports its temperature"))
    worst = max(known, key=lambda one: one.readings[HEAT])
    read = worst.readings.get
    limit = limit_of(HEAT, read)
    note = _joined(
        f"slows at {celsius(limit)}" if limit else "",
        others(HEAT, readings_of(gpus, HEAT, worst.gpu.uuid)),
        _partly(len(known), gpus),
    )
    tone = Tone.WARN if too_hot(read) else Tone.PLAIN
    label = f"hottest: {gpu_name('', worst.gpu.index)}"
    return DeviceFigure(FactRow(label, celsius(read(HEAT)), tone, note=note), share_of_limit(HEAT, read))


def _use(gpus: Sequence[GpuReply]) -> DeviceFigure:
    known = [one for one in gpus if USE in one.readings]
    if not known:
        return DeviceFigure(FactRow("use", UNKNOWN, Tone.STALE, note="no GPU reports its use"))
    mean = sum(one.readings[USE] for one in known) / len(known)
    least = min(known, key=lambda one: one.readings[USE])
    low = (
        f"least: {gpu_name('', least.gpu.index)}, {percent(least.readings[USE])}" if least.readings[USE] < mean else ""
    )
    note = _joined(f"mean of {counted(len(known), 'GPU')}", low, _partly(len(known), gpus))
    return DeviceFigure(FactRow("use", percent(mean), note=note), mean)


def _memory(gpus: Sequence[GpuReply]) -> DeviceFigure:
    known = [one for one in gpus if share_of_limit(MEMORY, one.readings.get) is not None]
    if not known:
        return DeviceFigure(FactRow("memory", UNKNOWN, Tone.STALE, note="no GPU reports its memory"))
    used, size = (sum(one.readings[each] for one in known) for each in (MEMORY, MEMORY_SIZE))
    fullest = max(known, key=lambda one: share_of_limit(MEMORY, one.readings.get) or 0.0)
    full = (
        f"fullest: {gpu_name('', fullest.gpu.index)}, {percent(share_of_limit(MEMORY, fullest.readings.get))}"
        if len(known) > 1
        else ""
    )
    note = _joined(f"of {gibibytes(size)}", full, _partly(len(known), gpus))
    its = at_least(gibibytes(used), partial=len(known) < len(gpus))
    return DeviceFigure(FactRow("memory", its, note=note), used / size)


def _held(gpus: Sequence[GpuReply]) -> DeviceFigure:
    heard = [one for one in gpus if one.holders is not None]
    keys = {(its.scheduler, its.job) for one in heard for its in one.holders or ()}
    users = sum(scheduler == "user" for scheduler, _ in keys)
    held = sum(bool(one.holders) for one in heard)
    silent = "" if len(heard) == len(gpus) else f"of {counted(len(gpus) - len(heard), 'GPU')} nobody says"
    without = f"{counted(users, 'user')} without a job" if users else ""
    note = _joined(f"{held:,} of {counted(len(heard), 'GPU')} held", without, silent)
    if any(not job for _, job in keys):  # hidden from who reads it
        return DeviceFigure(
            FactRow("held", f"{held:,} of {counted(len(heard), 'GPU')}", note=silent), held / len(heard)
        )
    jobs = counted(len(keys) - users, "job")
    return DeviceFigure(FactRow("held by", jobs, note=note), held / len(heard))


def gpu_figures(read: Read, peers: Sequence[GpuReply]) -> Iterator[DeviceFigure]:
    """Yield the figures of a GPU. `peers`: the other GPUs of its node."""
    for label, metric in (("temperature", HEAT), ("clock", CLOCK), ("power", POWER), ("use", USE), ("memory", MEMORY)):
        its = others(metric, readings_of(peers, metric))
        value, limit = read(metric), None if metric == USE else limit_of(metric, read)
        if value is None:
            yield DeviceFigure(FactRow(label, UNKNOWN, Tone.STALE, note=_joined("not read", its)))
            continue
        of = f"{'slows at' if metric == HEAT else 'of'} {WORDS[metric](limit)}" if limit else ""
        limited = clock_limit_row(read) if metric == CLOCK else None
        held = f"held by {limited.value}" if limited and limited.tone else ""
        wrong = (metric == HEAT and too_hot(read)) or (metric == CLOCK and slowed(read))
        tone = Tone.WARN if wrong else Tone.PLAIN
        row = FactRow(label, WORDS[metric](value), tone, note=_joined(of, held, its))
        yield DeviceFigure(row, share_of_limit(metric, read))
