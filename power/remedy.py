"""What clears an alert: the cap per GPU and, where no card takes it, what else would."""

from __future__ import annotations

from power.answer import Cap
from power.judgement import State
from power.layout import Layout, Line
from power.machine import Machine, cap_for

STANDARD_AMPS = (10, 13, 15, 16, 20, 25, 30, 32, 40, 50, 60, 63, 80, 100, 125)


def cap_of(line: Line, index: int, layout: Layout, state: State) -> Cap | None:
    """Return the cap per GPU that brings a line under its continuous limit; None without GPUs.

    Watts scale with amps: the part that the limit allows of one it allows of the other.
    """
    failing = "E08" in state.alerts[index]
    below = layout.below(line.id)
    machines = layout.machines
    parts = [(machines[c.machine], c.share) for c in layout.cords if c.line in below]
    watts, amps = float(state.committed.watts[index]), float(state.committed.highest[index])
    if amps == 0 or not parts:
        return None
    allowed = watts * line.continuous_amps / amps
    other = sum(o.other_watts for n, o in layout.lines.items() if n in below)
    if failing:  # all that hangs on the group comes here when the other feeds go
        parts = [(machine, 1.0) for machine in {m.id: m for m, _ in parts}.values()]
    found = cap_for(parts, allowed - other)
    if found is None:
        return None
    floors = [m.floor_watts for m, _ in parts if m.gpus and m.floor_watts is not None]
    floor = max(floors, default=None)
    reachable = found > 0 and (floor is None or found >= floor)
    return Cap(
        watts_per_gpu=found,
        floor_watts=floor,
        reachable=reachable,
        instead=()
        if reachable
        else _instead(line, parts, allowed - other, floor, amps / watts, found),
    )


def _instead(
    line: Line,
    parts: list[tuple[Machine, float]],
    allowed: float,
    floor: float | None,
    amps_per_watt: float,
    cap: int,
) -> tuple[str, ...]:
    lowest = [(m, share, floor if floor is not None else m.limit_watts) for m, share in parts]
    fixed = sum(share * m.fixed_watts for m, share, _ in lowest)
    needed = fixed + sum(s * m.gpus * at * m.watts_per_gpu_watt for m, s, at in lowest)
    gpus = sum(m.gpus for m, _, _ in lowest)
    each = (needed - fixed) / gpus
    keep = max(0, int((allowed - fixed) // each))
    ways = []
    if floor is not None and cap > 0:
        ways.append(f"hold the clocks down (nvidia-smi -lgc) until each GPU draws at most {cap} W")  # fmt: skip
    if keep:
        ways.append(f"run {keep} of the {gpus} GPUs here")
    if line.volts < 200 and len(line.poles) == 1:
        ways.append(f"move it to 240 V, where {needed * amps_per_watt * line.volts / 240:.1f} A do")
    limit = line.continuous_amps / line.rated_amps
    wanted = next((a for a in STANDARD_AMPS if a * limit >= needed * amps_per_watt), None)
    if wanted is not None and wanted > line.rated_amps:
        ways.append(f"a circuit of {wanted} A at this voltage, by an electrician")
    return tuple(ways)
