"""A tick of the electrical model: 2,000 circuits with 100,000 GPUs, against a plain loop.

python -m bench.circuits [--circuits 2000] [--gpus 100000] [--ticks 150] [--json]
python -m bench.circuits --meters 4000 [--against TREE]     a tick with so many meters alone, paired with another tree's

Three times: with breakers that hold, with one budget over all circuits, and with breakers that are all
overloaded, so that each has a time to trip in every tick.

The loop does the bare minimum for each circuit in plain Python: sum its nodes, amps per pole, one
step of the heat, and the time to trip by halving. It runs over a tenth of the circuits in the same
process, and its time is multiplied by ten: it has no cost that does not grow with them.

With `--meters`, one meter on each circuit and the others on nodes, each read every five seconds. `--against` runs
this file on the tree of another commit, too: ticks of both in turn, so that whatever slows the machine slows both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace as replace_fields

from api.power import FitRequest
from bench.report import show
from power.devices.breaker import EDGES
from power.devices.thermal import FAST_SHARE
from power.devices.wall_power import WallSource
from power.live import LivePower, PowerInputs
from power.meters.reading import MeterReading
from power.plan.fit import fit
from power.site.config import (
    BudgetConfig,
    CircuitConfig,
    CordConfig,
    NodeConfig,
    PanelConfig,
    PowerConfig,
    RedundancyConfig,
)
from power.site.layout import SiteLayout, lay_out
from power.wiring import Wiring

GPUS = 8
OVERLOADED = 63
"""Amps of a breaker that the load of the benchmark would trip."""
PANELS = 40
PART = 10
"""The loop runs over one in so many circuits."""
EPOCH = 1_750_000_000_000_000_000


def site_of(circuits: int, nodes: int, breaker: float = 125) -> PowerConfig:
    """Return pairs of three-phase feeds below panels of two utilities, every node on one pair."""
    pairs = circuits // 2
    panels = {
        f"p{number}{side}": PanelConfig(volts=415, wiring=Wiring.WYE, breaker=4000, source=f"utility-{side}")
        for number in range(PANELS)
        for side in "ab"
    }
    feeds = {
        f"c{number}{side}": CircuitConfig(
            panel=f"p{number % PANELS}{side}",
            poles=3,
            breaker=breaker,
            redundancy=RedundancyConfig(group=f"g{number}", role=side),
        )
        for number in range(pairs)
        for side in "ab"
    }
    machines = {
        f"n{number}": NodeConfig(
            profile="dgx-h100", cords=tuple(CordConfig(circuit=f"c{number * pairs // nodes}{side}") for side in "ab")
        )
        for number in range(nodes)
    }
    return PowerConfig(region="EU", panels=panels, circuits=feeds, nodes=machines)


def with_budget(site: PowerConfig) -> PowerConfig:
    """Return a site with one budget over all its circuits."""
    every = BudgetConfig(circuits=tuple(site.circuits), kwh_month=1e9)
    return replace_fields(site, budgets={"all": every})


class CircuitLoad:
    """Readings of the nodes, and of every fifth circuit's meter, or of so many meters."""

    def __init__(self, live: LivePower, seed: int, meters: int | None = None) -> None:
        self._random = np.random.default_rng(seed)
        count = len(live.machines)
        self._still = replace(
            PowerInputs.unknown(count),
            gpu_limit_watts=np.full(count, 5600.0),
            gpus=np.full(count, float(GPUS)),
            silent_seconds=np.full(count, 0.5),
            host_watts=np.full(count, 500.0),
            floor_watts=np.full(count, 200.0),
        )
        circuits = list(live.layout.site.circuits)
        self._meters: list[tuple[Literal["circuit", "node"], str]]
        if meters is None:
            self._meters = [("circuit", name) for name in circuits[::5]]
        else:
            every = [("circuit", name) for name in circuits] + [("node", name) for name in live.machines]
            self._meters = every[:meters]  # type: ignore[assignment]  # a kind's name

    def tick(self, number: int) -> PowerInputs:
        """Return one second: all nodes differ, and a fifth of the meters report."""
        gpu = self._random.uniform(2500, 5600, len(self._still.gpus))
        speaking = self._meters[number % 5 :: 5]
        readings = [
            MeterReading(
                meter=name,
                kind=kind,
                target=name,
                source=WallSource.PDU,
                at=1000.0 + number,
                period=5.0,
                watts=42_000.0 if kind == "circuit" else 6000.0 + 10 * (number // 5 % 9),
            )
            for kind, name in speaking
        ]
        return replace(self._still, gpu_watts=gpu, readings=readings)


def of_ticks(
    live: LivePower, ticks: int, seed: int, meters: int | None = None, after_tick: Callable[[], object] = int
) -> tuple[list[float], list[float]]:
    """Return ms of each tick: of wall time, and of this process's CPU. `after_tick` is called after each."""
    load, wall, cpu = CircuitLoad(live, seed, meters), [], []
    for number in range(ticks):
        tick = load.tick(number)
        began, ran = time.perf_counter(), time.process_time()
        live.tick(1000.0 + number, EPOCH + number * 10**9, tick)
        wall.append((time.perf_counter() - began) * 1e3)
        cpu.append((time.process_time() - ran) * 1e3)
        after_tick()
    return wall, cpu


def of_meters(circuits: int, gpus: int, ticks: int, meters: int, turn: Callable[[], object] = int) -> dict[str, Any]:
    """Return ms of a tick's CPU with so many meters; `turn` waits for this tree's turn."""
    live = LivePower(lay_out("bench", site_of(circuits, gpus // GPUS)))
    turn()
    cpu = sorted(of_ticks(live, ticks, 1, meters, turn)[1][min(20, ticks // 2) :])
    return {
        "circuits": circuits,
        "meters": meters,
        "ticks": len(cpu),
        "metered_tick_cpu_median_milliseconds": statistics.median(cpu),
        "metered_tick_cpu_p90_milliseconds": cpu[int(0.9 * (len(cpu) - 1))],
    }


def in_turn() -> None:
    """Say that a tick is done, and wait to be told to go on."""
    print(flush=True)
    sys.stdin.readline()


def paired(trees: Sequence[Path], arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Run this file on some trees, a tick of each in turn; return what each measured."""
    command = [sys.executable, str(Path(__file__).resolve()), *arguments, "--in-turn", "--json"]
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(
                    command,
                    cwd=tree,
                    env=os.environ | {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"},
                    text=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for tree in trees
        ]
        said = [_said(one) for one in running]  # each has built its site
        while not all(said):
            said = [_after_turn(one) for one in running]
        return [json.loads(line) for line in said]


def _after_turn(one: subprocess.Popen[str]) -> str:
    """Let a tree compute a tick; return what it says then."""
    assert one.stdin is not None
    one.stdin.write("\n")
    one.stdin.flush()
    return _said(one)


def _said(one: subprocess.Popen[str]) -> str:
    """Return the next line of a tree: empty after a tick, and what it measured in the end."""
    assert one.stdout is not None
    line = one.stdout.readline()
    if not line:
        raise SystemExit(f"a tree ended with {one.wait()}")
    return line.strip()


class WithoutLosses(LivePower):
    """A live state that works out no loss of another element."""

    def __init__(self, layout: SiteLayout) -> None:
        super().__init__(layout)
        self._losses.outcome = lambda *_: None  # type: ignore[assignment,method-assign]


def of_losses(layout: SiteLayout, ticks: int, seed: int) -> tuple[float, float]:
    """Return the median of a tick's CPU over that of one without any loss, and the same of the losses
    alone. Both states tick in turn, so that whatever slows the machine slows both."""
    whole, least = LivePower(layout), WithoutLosses(layout)
    load = CircuitLoad(whole, seed)
    both: list[float] = []
    without: list[float] = []
    for number in range(ticks):
        tick = load.tick(number)
        for live, times in ((whole, both), (least, without)):
            ran = time.process_time()
            live.tick(1000.0 + number, EPOCH + number * 10**9, tick)
            times.append((time.process_time() - ran) * 1e3)
    warm = slice(min(20, ticks // 2), None)
    with_losses, plain = statistics.median(both[warm]), statistics.median(without[warm])
    return with_losses / plain, with_losses - plain


def of_loop(layout: SiteLayout, part: int) -> float:
    """Return ms of the plain loop over one in `part` circuits, times `part`."""
    names = list(layout.site.circuits)[::part]
    on: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    number = {name: index for index, name in enumerate(layout.machines)}
    for cord in layout.cords:
        if cord.circuit in on:
            on[cord.circuit].append((number[cord.machine], cord.share))
    watts = np.random.default_rng(1).uniform(6000, 10_000, len(number)).tolist()
    heat = {name: [(0.5, 0.5)] * len(EDGES) for name in names}
    began = time.perf_counter()
    for name in names:
        circuit = layout.circuits[name]
        total = circuit.other_watts + sum(watts[machine] * share for machine, share in on[name])
        poles = [total / 3 / (circuit.volts * circuit.power_factor) for _ in circuit.poles]
        ratio = max(poles) / circuit.effective_amps
        for index, edge in enumerate(circuit.band.edges()):
            fast, slow = heat[name][index]
            fast += (ratio**2 - fast) * -math.expm1(-1 / edge.fast_seconds)
            slow += (ratio**2 - slow) * -math.expm1(-1 / edge.slow_seconds)
            heat[name][index] = fast, slow
            _trip(ratio, fast, slow, edge.fast_seconds, edge.slow_seconds, edge.pickup)
    return (time.perf_counter() - began) * 1e3 * part


def _trip(ratio: float, fast: float, slow: float, tau: float, long: float, pickup: float) -> float:
    low, high = 0.0, 1e5
    for _ in range(48):
        at = 0.5 * (low + high)
        f = ratio**2 + (fast - ratio**2) * math.exp(-at / tau)
        s = ratio**2 + (slow - ratio**2) * math.exp(-at / long)
        if FAST_SHARE * f + (1 - FAST_SHARE) * s >= pickup**2:
            high = at
        else:
            low = at
    return high


def of_fit(circuits: int, gpus: int) -> dict[str, float]:
    """Return ms of the search for three DGX H100, from the decoded settings: over pairs that redundancy
    groups declare, and over all pairs of circuits of two panels without one."""
    found = {}
    asked = FitRequest(what="dgx-h100", count=3)
    site = site_of(circuits, gpus // GPUS)
    alone = {name: replace_fields(spec, redundancy=None) for name, spec in site.circuits.items()}
    for name, hall in (("fit", site), ("fit_undeclared", replace_fields(site, circuits=alone))):
        times = []
        for _ in range(3):
            began = time.perf_counter()
            fit("bench", hall, asked)
            times.append(time.perf_counter() - began)
        found[f"{name}_milliseconds"] = statistics.median(times) * 1e3
    return found


def measure(circuits: int, gpus: int, ticks: int) -> dict[str, Any]:
    """Return ms a tick, and of the loop."""
    began = time.perf_counter()
    layout = lay_out("bench", site_of(circuits, gpus // GPUS))
    laid_out = time.perf_counter() - began
    began = time.perf_counter()
    live = LivePower(layout)
    built = time.perf_counter() - began
    wall, cpu = of_ticks(live, ticks, seed=1)
    warm = slice(min(20, ticks // 2), None)
    wall, cpu = sorted(wall[warm]), sorted(cpu[warm])
    budgeted = LivePower(lay_out("bench", with_budget(site_of(circuits, gpus // GPUS))))
    billed = sorted(of_ticks(budgeted, ticks, seed=1)[1][warm])
    profile = budgeted.months.ledger.profile
    hot = LivePower(lay_out("bench", site_of(circuits, gpus // GPUS, OVERLOADED)))
    overloaded = sorted(of_ticks(hot, ticks, seed=1)[0][warm])
    losses_ratio, losses = of_losses(layout, ticks, seed=1)
    loop = of_loop(layout, PART)
    return {
        "circuits": circuits,
        "lines_with_panels": len(layout.circuits),
        "gpus": gpus,
        "nodes": len(layout.machines),
        "ticks": len(wall),
        "tick_median_milliseconds": statistics.median(wall),
        "tick_p99_milliseconds": wall[int(0.99 * (len(wall) - 1))],
        "tick_max_milliseconds": wall[-1],
        "tick_cpu_median_milliseconds": statistics.median(cpu),
        "tick_cpu_max_milliseconds": cpu[-1],
        "budget_tick_cpu_median_milliseconds": statistics.median(billed),
        "budget_tick_cpu_max_milliseconds": billed[-1],
        "budget_tick_cpu_median_ratio": statistics.median(billed) / statistics.median(cpu),
        "budget_tick_cpu_max_ratio": billed[-1] / cpu[-1],
        "budget_month_megabytes": 0.0 if profile is None else profile.nbytes / 1e6,
        "overloaded_tick_median_milliseconds": statistics.median(overloaded),
        "overloaded_tick_max_milliseconds": overloaded[-1],
        "losses_tick_cpu_median_ratio": losses_ratio,
        "losses_cpu_median_milliseconds": losses,
        "lay_out_milliseconds": laid_out * 1e3,
        "build_milliseconds": built * 1e3,
        **of_fit(circuits, gpus),
        "plain_loop_milliseconds": loop,
        "plain_loop_measured_over_one_in": PART,
        "times_faster_than_plain_loop": loop / statistics.median(wall),
    }


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.circuits", description=__doc__)
    parser.add_argument("--circuits", type=int, default=2000)
    parser.add_argument("--gpus", type=int, default=100_000)
    parser.add_argument("--ticks", type=int, default=150)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--meters", type=int)
    parser.add_argument("--against", type=Path, metavar="TREE")
    parser.add_argument("--in-turn", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.against is not None and options.meters is None:
        parser.error("--against compares ticks with --meters")
    sizes = options.circuits, options.gpus, options.ticks
    if options.against is not None:
        wanted = [f"--{name}={getattr(options, name)}" for name in ("circuits", "gpus", "ticks", "meters")]
        ours, theirs = paired([Path.cwd(), options.against.resolve()], wanted)
        median = "metered_tick_cpu_median_milliseconds"
        show(ours | {"against": theirs, "ratio": ours[median] / theirs[median]}, as_json=options.json)
        return 0
    if options.meters is not None:
        turn = in_turn if options.in_turn else int
        show(of_meters(*sizes, options.meters, turn), as_json=options.json)
        return 0
    show(measure(*sizes), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
