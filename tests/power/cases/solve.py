"""Work out the answers of the planning questions in `*.toml` beside this file, with nothing of kilowatch.

    python tests/power/cases/solve.py --check    # the committed answers are what is worked out here
    python tests/power/cases/solve.py --write    # write them

A case is a question in words, the settings of a site, what is supposed, and `[case.answer]`: a table whose
keys ask and whose values answer. Keys, for a circuit or panel X, a node N, a budget B:

- `X.amps.L1`, `X.neutral`, `X.watts`, `X.limit` (amps that it may carry for hours), `X.rating` (amps after
  heat and grouping), `X.fits` (within both), `X.ratio` (highest pole over the breaker's rating)
- `X.survivor`: highest amps on X after the worst loss of one other element of the site
- `X.trip`: `never`, `may` or `must`, by what the breaker's standard promises; `X.at_once`: `no`, `may` or `must`
  within 0.1 s, by its magnetic range
- `X.cap` (watts per GPU at which X holds its limit), `X.cap_accepted` (whether the cards take that)
- `X.breaker`: smallest standard breaker that carries the load for hours; `X.most.N`: most GPUs of node N
- `N.watts` and `N.dark`, `N.supply_load` (supplies that must carry all), `B.kw`
- `refused`: place of the setting that can't be; `note`: a word of what the plan says that it assumed

Facts (power of boards and systems, 80 PLUS minima, standard sizes, mains voltages) are public data of
makers, 80 PLUS, NEC 240.6, IEC 60898-1 and IEC TR 60083; each stands here once, for itself.
"""

from __future__ import annotations

import argparse
import cmath
import math
import re
import sys
import tomllib
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

Table = dict[str, Any]
HERE = Path(__file__).parent

# --- facts -------------------------------------------------------------------------------------------

MAINS = {
    "US": 120, "CA": 120, "MX": 127, "TW": 110, "JP": 100, "KR": 220, "CN": 220, "UK": 230, "GB": 230,
    "DE": 230, "FR": 230, "CH": 230, "IT": 230, "SE": 230, "IN": 230, "AU": 230, "ZA": 230, "EU": 230,
    "KE": 240, "AR": 220, "CL": 220, "SG": 230, "CO": 120, "NL": 230, "PL": 230, "NO": 230, "BR": 220, "PH": 220,
}  # fmt: skip
"""Volts of a home's outlet. Brazil has 127 or 220 by city: a plan without volts must say what it assumed."""
AMERICAN = {"US", "CA", "MX", "TW", "JP", "CO"}
"""Breakers after UL 489 or of its kind: 80 % for hours. The others' rated current is the continuous one."""

GPU_WATTS = {
    "RTX 2080 Ti": 250, "RTX 3060": 170, "RTX 3080": 320, "RTX 3090": 350, "RTX 4070": 200, "RTX 4080": 320,
    "RTX 4090": 450, "RTX 5080": 360, "RTX 5090": 575, "RTX A6000": 300, "RTX 6000 Ada": 300,
    "RTX PRO 6000": 600, "L4": 72, "L40S": 350, "T4": 70, "A10": 150, "A40": 300, "A100 80GB PCIe": 300,
    "A100 SXM4": 400, "H100 PCIe": 350, "H100 NVL": 400, "H100 SXM": 700, "V100 SXM2": 300, "MI300X": 750,
    "MI210": 300, "GB200": 1200,
}  # fmt: skip
LEAST_CAP = {"RTX 3090": 100, "RTX 4090": 150, "RTX 5090": 400, "H100 SXM": 200, "GB200": 200}

SYSTEMS = {
    "dgx-a100": {"watts": 6500, "gpus": 8, "tdp": 400, "supply": 3000, "count": 6, "needed": 3},
    "dgx-h100": {"watts": 10200, "gpus": 8, "tdp": 700, "supply": 3300, "count": 6, "needed": 4, "floor": 200},
    "dgx-h200": {"watts": 10200, "gpus": 8, "tdp": 700, "supply": 3300, "count": 6, "needed": 4},
    "dgx-b200": {"watts": 14300, "gpus": 8, "tdp": 1000, "supply": 3300, "count": 6, "needed": 5},
    "gb200-nvl72": {"watts": 120000, "gpus": 72, "tdp": 1200, "floor": 200},
    "gb200-tray": {"watts": 6667, "gpus": 4, "tdp": 1200, "floor": 200},
    "dgx-spark": {"watts": 240, "gpus": 0, "tdp": 0, "supply": 240, "count": 1, "needed": 1},
}
"""Watts of a complete system are its published maximum at the wall, in every state of its supplies."""

EFFICIENCY = {
    ("white", "low"): ((0.2, 0.80), (0.5, 0.80), (1, 0.80)),
    ("bronze", "low"): ((0.2, 0.82), (0.5, 0.85), (1, 0.82)),
    ("gold", "low"): ((0.2, 0.87), (0.5, 0.90), (1, 0.87)),
    ("platinum", "low"): ((0.2, 0.90), (0.5, 0.92), (1, 0.89)),
    ("titanium", "low"): ((0.1, 0.90), (0.2, 0.92), (0.5, 0.94), (1, 0.90)),
    ("bronze", "high"): ((0.2, 0.85), (0.5, 0.88), (1, 0.85)),
    ("gold", "high"): ((0.2, 0.90), (0.5, 0.92), (1, 0.89)),
    ("platinum", "high"): ((0.2, 0.92), (0.5, 0.94), (1, 0.90)),
    ("titanium", "high"): ((0.1, 0.90), (0.2, 0.94), (0.5, 0.96), (1, 0.94)),
    ("bronze", "spare"): ((0.2, 0.81), (0.5, 0.85), (1, 0.81)),
    ("gold", "spare"): ((0.2, 0.88), (0.5, 0.92), (1, 0.88)),
    ("platinum", "spare"): ((0.2, 0.90), (0.5, 0.94), (1, 0.91)),
    ("titanium", "spare"): ((0.1, 0.90), (0.2, 0.94), (0.5, 0.96), (1, 0.91)),
}

CONNECTORS = {"Schuko": 16, "BS 1363": 13, "CEE 16": 16, "CEE 32": 32, "AS 3112 10 A": 10, "C13": 10, "C19": 16}
NEMA = {"5-15": 15, "5-20": 20, "6-20": 20, "L6-30": 30, "C13": 15, "C19": 20}
"""Rated amps; of the second table eight tenths may be drawn for hours, where breakers are American."""
TRIPS = {
    "UL489": (1.0, 1.35),
    "JIS": (1.0, 1.25),
    "IEC-B": (1.13, 1.45),
    "IEC-C": (1.13, 1.45),
    "IEC-D": (1.13, 1.45),
    "IEC-60947": (1.05, 1.30),
    "gG": (1.25, 1.6),
}
"""Current over rating that a class must hold for hours, and that at which it must have tripped then."""

TESTED_C = {"UL489": 25, "JIS": 25, "IEC-B": 30, "IEC-C": 30, "IEC-D": 30, "IEC-60947": 30, "gG": 20}
"""Ambient of the test by which it must have tripped. A colder device trips later: half a per cent a degree."""
MAGNETIC = {"IEC-B": (3, 5), "IEC-C": (5, 10), "IEC-D": (10, 20)}
"""Current over rating from which a class may, and from which it must, open within 0.1 s (IEC 60898-1)."""

NEC_SIZES = (15, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 90, 100, 110, 125, 150, 175, 200, 225, 250, 300, 350, 400)
IEC_SIZES = (6, 10, 13, 16, 20, 25, 32, 40, 50, 63, 80, 100, 125)

# --- voltage and poles -------------------------------------------------------------------------------

TURN = cmath.exp(2j * math.pi / 3)
PHASES = {"wye": (1, 1 / TURN, TURN), "split": (1, -1, 0)}
POLES = ("L1", "L2", "L3")


def number(value: float | str) -> float:
    return float(str(value).strip().rstrip("A"))


def poles_of(text: str | None, count: int) -> list[int]:
    return [POLES.index(p) for p in text.split("-")] if text else list(range(count))


class Circuit:
    """A circuit or panel: volts to neutral of its poles, and what its breaker allows."""

    def __init__(self, name: str, spec: Table, site: Table, above: Circuit | None, *, panel: bool) -> None:
        region = site.get("region")
        american = region is None or region in AMERICAN
        home = MAINS.get(region or "US", 230)
        wiring = spec.get("wiring")
        if panel and wiring is None:
            wiring = "split" if spec.get("volts") == 240 else "3ph-wye"
        count = spec.get("poles") or (len(spec["phase"].split("-")) if "phase" in spec else 0)
        if not count:
            count = 3 if str(wiring).startswith("3ph") else 2 if wiring == "split" else 1
        volts = spec.get("volts")
        self.split: bool = wiring == "split" or (count == 2 and wiring is None and volts != 208)
        between = 2 if self.split else math.sqrt(3)
        self.volts: float = home if volts is None else volts / (between if count > 1 else 1)
        if above is not None:
            self.split, self.volts = above.split, above.volts
        self.name, self.above, self.panel = name, above, panel
        self.volts *= spec.get("sag", 1.0)
        self.poles = poles_of(spec.get("phase"), count)
        rated = spec.get("breaker", spec.get("rated_amps"))
        self.rated = math.inf if rated is None else number(rated)
        self.pf = spec.get("pf", 0.97)
        curve = spec.get("curve")
        if curve is None:
            lines = round(self.volts * (1 if len(self.poles) == 1 else 2 if self.split else math.sqrt(3)))
            american = region in AMERICAN if region else lines in {100, 120, 208, 240, 277, 480}
        else:
            american = curve in {"UL489", "JIS"} or (curve in {"LSI", "unknown"} and region in AMERICAN)
        self.american = american
        self.curve = curve or ("JIS" if region == "JP" else "UL489" if american else "IEC-C")
        reference = 40 if american else 30
        heat = 1 - 0.005 * (site.get("site", {}).get("ambient_c", 30) - reference)
        carries = self.rated * spec.get("lsi", {}).get("ir", 1.0)
        self.rating = min(carries, carries * heat * spec.get("grouping", 1.0))
        # What must have tripped is promised of the rating itself: heat and neighbours may be less than assumed.
        self.tested = carries * cold(self.curve, site.get("site", {}).get("ambient_c", 30))
        self.limit = min(carries * spec.get("continuous", 0.8 if american else 1.0), self.rating)
        if "connector" in spec:
            name_of = spec["connector"]
            usable = 0.8 * NEMA[name_of] if american and name_of in NEMA else CONNECTORS[name_of]
            self.limit = min(self.limit, usable)
        if spec.get("rating_is_derated"):
            self.rating = self.limit = self.rated
        self.other = float(spec.get("other_w", 0.0))
        redundancy = spec.get("redundancy") or {}
        self.group, self.scheme = redundancy.get("group"), redundancy.get("scheme", "2N")
        role = str(redundancy.get("role", ""))
        self.side = redundancy.get("side") or role.rstrip("0123456789") or role
        self.kind, self.link, self.inputs = "circuits", "wire", list[str]()
        self.bypass: str | None = None
        self.capacity = math.inf
        self.points: tuple[tuple[float, float], ...] = ((0.01, 1.0), (1.0, 1.0))

    def per_watt(self, poles: list[int]) -> list[complex]:
        """Amps on L1, L2, L3 for one watt across these poles."""
        turn = PHASES["split" if self.split else "wye"]
        amps = [0j, 0j, 0j]
        if len(poles) == 2:
            one, two = poles
            line = (turn[one] - turn[two]) * self.volts
            current = 1 / self.pf / abs(line) * line / abs(line)
            amps[one], amps[two] = current, -current
        else:
            for pole in poles:
                amps[pole] = turn[pole] / (self.volts * self.pf * len(poles))
        return amps


# --- machines ----------------------------------------------------------------------------------------


def eta(points: tuple[tuple[float, float], ...], load: float) -> float:
    if load < points[0][0]:
        lost = points[0][0] * (1 / points[0][1] - 1)
        return load / (load + lost) if load else 0.0
    for (a, at_a), (b, at_b) in pairwise(points):
        if load <= b:
            return at_a + (at_b - at_a) * (load - a) / (b - a)
    return points[-1][1]


def cards(text: str) -> tuple[int, str]:
    match = re.fullmatch(r"(?:(\d+)x )?(.+)", text)
    assert match
    names = {name.lower().replace(" ", "-"): name for name in GPU_WATTS}
    return int(match[1] or 1), names[match[2].lower().replace(" ", "-")]


class Node:
    """A machine: watts at the wall by the number of its supplies that work."""

    def __init__(self, name: str, spec: Table, volts: float, feeds: int) -> None:
        self.name, self.spec = name, spec
        self.fixed: float | None = None
        self.gpus, self.limit, self.floor = 0, 0.0, None
        supply = spec.get("supply", {})
        self.each, self.count = supply.get("watts"), supply.get("count", 1)
        self.needed = supply.get("needed") or self.count
        self.host = 0.0
        spare = supply.get("count", 1) > 1 and supply.get("needed") is not None
        self.points = EFFICIENCY[supply.get("tier", "gold"), "low" if volts <= 150 else "spare" if spare else "high"]
        if "points" in supply:
            self.points = tuple((load, value) for load, value in supply["points"])
        if "profile" in spec:
            system = SYSTEMS[spec["profile"]]
            self.points = EFFICIENCY["titanium", "spare" if system.get("count", 1) > 1 else "high"]
            self.fixed = float(system["watts"])
            self.gpus, self.limit, self.floor = (system["gpus"], float(system["tdp"]), system.get("floor"))
            self.each, self.count, self.needed = (system.get("supply"), system.get("count", 1), system.get("needed", 1))
            self.full = float(system["tdp"])
        elif "gpus" in spec or "tdp_watts" in spec:
            parts = spec["gpus"] if isinstance(spec["gpus"], list) else [spec["gpus"]]
            self.parts = []
            for part in parts:
                count, model = cards(part)
                self.parts.append((count, float(spec.get("tdp_watts") or GPU_WATTS[model])))
                self.floor = max(self.floor or 0, LEAST_CAP.get(model, 0)) or None
            self.gpus = sum(count for count, _ in self.parts)
            self.host = spec.get("host_watts", 250.0)
            self.limit = max(watts for _, watts in self.parts)
            if "needed" not in supply:
                self.needed = max(1, self.count - (feeds > 1))
        elif "watts" in spec or "host_watts" not in spec:
            self.fixed = float(spec.get("watts", 0.0))
        else:
            self.host, self.parts = float(spec["host_watts"]), []
        self.floor = spec.get("floor_watts", self.floor)
        if spec.get("cap_watts") is not None:
            self.cap(spec["cap_watts"])

    def cap(self, watts: float) -> None:
        """Set the limit of each GPU; a card takes no less than its lowest cap."""
        self.limit = min(self.limit, max(watts, self.floor or 0.0))

    def inside(self, cap: float | None = None) -> float:
        """Return watts behind the supplies."""
        limit = self.limit if cap is None else cap
        if "profile" in self.spec:
            return self.behind(self.fixed or 0.0) - self.gpus * (self.full - limit)
        if self.fixed is not None:
            return self.behind(self.fixed)
        return self.host + sum(count * min(limit, tdp) for count, tdp in self.parts)

    def behind(self, wall: float) -> float:
        if self.each is None:
            return wall * eta(self.points, 0.5)
        low, high = 0.0, wall
        for _ in range(80):
            mid = (low + high) / 2
            low, high = (
                (low, mid) if mid and mid / eta(self.points, mid / (self.each * self.count)) > wall else (mid, high)
            )
        return low

    def wall(self, working: float | None = None, cap: float | None = None) -> float:
        """Return watts at the wall with so many working supplies."""
        if self.fixed is not None and "profile" not in self.spec:
            return self.fixed
        dc = self.inside(cap)
        working = None if "profile" in self.spec else working
        if self.each is None:
            return dc / eta(self.points, 0.5)
        return dc / eta(self.points, dc / (self.each * (working or self.count)))


# --- the site ----------------------------------------------------------------------------------------


class Site:
    """A site with what is supposed, and its flows."""

    def __init__(self, text: str, suppose: Table) -> None:
        tree = tomllib.loads(text)
        self.tree = tree = deepcopy(tree.get("power", tree))
        self.suppose = suppose
        self._change(tree, suppose)
        self.circuits: dict[str, Circuit] = {}
        todo = [
            (kind, name, spec)
            for kind in ("panels", "transformers", "ups", "transfers", "circuits")
            for name, spec in tree.get(kind, {}).items()
        ]
        names = {name for _, name, _ in todo}
        while todo:
            kind, name, spec = todo.pop(0)
            inputs = [one for one in _inputs(spec) if one]
            if any(one in names and one not in self.circuits for one in inputs):
                todo.append((kind, name, spec))  # what feeds it comes first
            else:
                self._element(kind, name, spec, inputs)
        self.cords = self._cords(tree)
        self.nodes: dict[str, Node] = {}
        for name in dict.fromkeys(cord[0] for cord in self.cords):
            feeds = [c for c in self.cords if c[0] == name]
            volts = min(self._outlet(c) for c in feeds)
            self.nodes[name] = Node(name, tree.get("nodes", {}).get(name, {}), volts, len(feeds))
        if suppose.get("cap"):
            for node in self.nodes.values():
                if node.gpus:
                    node.cap(suppose["cap"])

    def _element(self, kind: str, name: str, spec: Table, inputs: list[str]) -> None:
        """Build one element of the tree; a transformer with a breaker on its primary is two."""
        above = next((self.circuits[one] for one in inputs if one in self.circuits), None)
        if kind == "panels" and above is None:
            spec = self._panel(spec, self.tree)
        if kind == "transformers":
            primary = spec.get("primary", {})
            if "breaker" in primary:
                first = Circuit(f"{name}.primary", {"wiring": "3ph-delta", **primary}, self.tree, above, panel=True)
                first.inputs = inputs or [spec.get("source", "")]
                self.circuits[first.name], inputs = first, [first.name]
                above = first
            built = Circuit(name, {**spec, "wiring": "3ph-wye", **spec["secondary"]}, self.tree, None, panel=True)
            built.link = "delta-wye" if spec.get("delta_wye", True) else "wire"
        else:
            own = {key: value for key, value in spec.items() if kind != "ups" or key != "watts"}
            built = Circuit(name, own, self.tree, above, panel=kind != "circuits")
        if kind == "ups":
            built.link, built.bypass = "converter", spec.get("bypass") or None
            built.bypass = inputs[0] if built.bypass is True else built.bypass
            inputs = inputs[:1]
        if above is not None and kind != "transformers":
            built.poles = built.poles if kind == "circuits" else above.poles
        built.kind, built.inputs = kind, inputs or ([spec["source"]] if spec.get("source") else [])
        if spec.get("on") == "alternate":
            built.inputs.reverse()
        built.capacity = spec.get("watts", 1000 * spec.get("kva", 0)) or math.inf
        given = spec.get("efficiency", 1.0)
        built.points = ((0.01, given), (1.0, given)) if isinstance(given, float) else tuple(map(tuple, given))
        self.circuits[name] = built

    @staticmethod
    def _panel(spec: Table, tree: Table) -> Table:
        if spec.get("volts") is None:
            home = MAINS.get(tree.get("region") or "DE", 230)
            lines = {120: 208, 127: 220, 110: 220, 100: 200, 220: 380}.get(home, 400)
            return {**spec, "volts": lines}
        return spec

    @staticmethod
    def _change(tree: Table, suppose: Table) -> None:
        nodes, circuits = tree.setdefault("nodes", {}), tree.get("circuits", {})
        for node, target in suppose.get("move", {}).items():
            for spec in circuits.values():
                spec["nodes"] = [n for n in spec.get("nodes", []) if n != node]
            nodes[node] = {**nodes.get(node, {}), "cords": _targets(tree, target)}
        for at, (what, target) in enumerate(suppose.get("add", []), 1):
            model, _, count = what.partition(":")
            if model in SYSTEMS:
                for copy in range(int(count or 1)):
                    nodes[f"added-{at}" + (f"-{copy + 1}" if copy else "")] = {
                        "profile": model,
                        "cords": _targets(tree, target),
                    }
            else:
                nodes[f"added-{at}"] = {
                    "gpus": f"{count or 1}x {model}",
                    "host_watts": 0,
                    "cords": _targets(tree, target),
                }

    def _cords(self, tree: Table) -> list[tuple[str, str, float, list[int], float | None]]:
        found: list[tuple[str, str, float, list[int], float | None]] = []
        listed: dict[str, list[str]] = {}
        for name, spec in tree.get("circuits", {}).items():
            for node in spec.get("nodes", []):
                listed.setdefault(node, []).append(name)
        for node, feeds in listed.items():
            found += [(node, name, 1 / len(feeds), self.circuits[name].poles, None) for name in feeds]
        for node, spec in tree.get("nodes", {}).items():
            cords = spec.get("cords", [])
            behind = [self._supplies(cord.get("psu")) for cord in cords]
            total = sum(count or 0 for count in behind)
            for cord, count in zip(cords, behind, strict=True):
                share = cord["share"] if "share" in cord else count / total if count else 1 / len(cords)
                poles = poles_of(cord.get("phase"), 0) if "phase" in cord else self.circuits[cord["circuit"]].poles
                found.append((node, cord["circuit"], share, poles, count))
        return found

    @staticmethod
    def _supplies(psu: str | int | None) -> int | None:
        if psu is None:
            return None
        first, _, last = str(psu).partition("-")
        return int(last or first) - int(first) + 1

    def _outlet(self, cord: tuple[str, str, float, list[int], float | None]) -> float:
        circuit = self.circuits[cord[1]]
        return circuit.volts * (1.0 if len(cord[3]) == 1 else 2.0 if circuit.split else 3**0.5)

    def feeds(self, name: str, lost: list[str], gone: set[str]) -> list[tuple[str, str]] | None:
        """Return what feeds an element, and how its current relates to that; None where nothing does."""
        element = self.circuits[name]

        def on(one: str) -> bool:
            return one not in gone if one in self.circuits else one not in lost

        if name in lost:  # a UPS that fails is passed by
            return [(element.bypass, "wire")] if element.bypass and on(element.bypass) else None
        live = [(one, element.link) for one in element.inputs if on(one)]
        if element.kind == "transfers":
            return live[:1] or None
        if element.bypass and not live and on(element.bypass):
            return [(element.bypass, "wire")]
        return live if live or not element.inputs else None

    def dead(self, lost: list[str]) -> set[str]:
        gone: set[str] = set()
        for name in self.circuits:  # what feeds comes first
            if self.feeds(name, lost, gone) is None:
                gone.add(name)
        return gone

    def shares(self, node: str, gone: set[str]) -> list[float]:
        """Return the share of each cord of the site in a node's power."""
        mine = [c[2] if c[0] == node and c[1] not in gone else 0.0 for c in self.cords]
        if sum(mine) == 0:  # the cords in standby take over
            mine = [1.0 if c[0] == node and c[1] not in gone else 0.0 for c in self.cords]
        return [share / sum(mine) if sum(mine) else 0.0 for share in mine]

    def working(self, node: Node, gone: set[str]) -> float:
        cords = [c for c in self.cords if c[0] == node.name]
        left = sum(node.count / len(cords) if c[4] is None else c[4] for c in cords if c[1] not in gone)
        return round(left)

    def node_watts(self, node: Node, gone: set[str], cap: float | None = None) -> float:
        if not any(c[0] == node.name and c[1] not in gone for c in self.cords):
            return 0.0
        if node.name in self.suppose.get("watts", {}):
            return float(self.suppose["watts"][node.name])
        limit = None if cap is None or not node.gpus else min(cap, node.limit)
        return node.wall(self.working(node, gone), limit)

    def flow(self, lost: list[str], cap: float | None = None) -> dict[str, tuple[list[complex], float]]:
        """Return the phasors of L1 to L3 and the watts of every circuit."""
        gone = self.dead(lost)
        amps = {name: [0j, 0j, 0j] for name in self.circuits}
        watts = dict.fromkeys(self.circuits, 0.0)

        def put(name: str, load: float, poles: list[int]) -> None:
            phasors = self.circuits[name].per_watt(poles)
            amps[name] = [one + load * other for one, other in zip(amps[name], phasors, strict=True)]
            watts[name] += load

        for name, circuit in self.circuits.items():
            if name not in gone:
                put(name, circuit.other, circuit.poles)
        for node in self.nodes.values():
            load = self.node_watts(node, gone, cap)
            for cord, share in zip(self.cords, self.shares(node.name, gone), strict=True):
                if share:
                    put(cord[1], load * share, cord[3])
        for name in reversed(self.circuits):
            rows = [] if name in gone else self.feeds(name, lost, gone) or []
            ratings = [self.circuits[one].capacity if one in self.circuits else 1.0 for one, _ in rows]
            for (one, link), rating in zip(rows, ratings, strict=True):
                if one in self.circuits:
                    part = 1 / len(rows) if math.inf in ratings else rating / sum(ratings)
                    up, drawn = through(self.circuits[name], self.circuits[one], link, amps[name], watts[name])
                    amps[one] = [x + part * y for x, y in zip(amps[one], up, strict=True)]
                    watts[one] += part * drawn
        return {name: (amps[name], watts[name]) for name in self.circuits}

    def highest(self, name: str, lost: list[str], cap: float | None = None) -> float:
        return max(abs(x) for x in self.flow(lost, cap)[name][0])

    def losses(self) -> list[list[str]]:
        """Return what may be lost at once: every element alone, a side where a scheme says so, and with
        2(N+1) a side with one element of another."""
        sources = {one for c in self.circuits.values() for one in c.inputs if one not in self.circuits}
        found = [[name] for name in [*self.circuits, *sources]]
        groups: dict[str, list[Circuit]] = {}
        for circuit in self.circuits.values():
            if circuit.group:
                groups.setdefault(circuit.group, []).append(circuit)
        for members in groups.values():
            if members[0].scheme not in {"2N", "2(N+1)"}:
                continue
            for side in {one.side for one in members}:
                together = [one.name for one in members if one.side == side]
                found.append(together)
                if members[0].scheme == "2(N+1)":
                    found += [[*together, one.name] for one in members if one.side != side]
        return found

    def survivor(self, name: str, cap: float | None = None) -> float:
        """Return the highest amps after the worst loss that leaves the circuit on."""
        already = list(self.suppose.get("lose", []))
        return max(
            self.highest(name, [*already, *lost], cap)
            for lost in self.losses()
            if name not in self.dead([*already, *lost])
        )


def _targets(tree: Table, text: str) -> list[Table]:
    """Return the cords of `A+B`, of a group of feeds, or of `A.L1-L2`."""
    circuits = tree["circuits"]
    group = [name for name, spec in circuits.items() if spec.get("redundancy", {}).get("group") == text]
    if group:
        return [{"circuit": name} for name in group]
    cords = []
    for part in text.split("+"):
        name, _, poles = (part, "", "") if part in circuits else part.rpartition(".")
        cords.append({"circuit": name} | ({"phase": poles} if poles else {}))
    return cords


def _inputs(spec: Table) -> list[str]:
    """Return what can feed an element, the one in use first."""
    parent = spec.get("parent") or spec.get("panel")
    bypass = spec.get("bypass")
    named = [*([parent] if isinstance(parent, str) else parent or [])]
    return [
        *named,
        *(spec[key] for key in ("preferred", "alternate") if key in spec),
        *([bypass] if isinstance(bypass, str) else []),
    ]


def through(
    element: Circuit, above: Circuit, link: str, amps: list[complex], watts: float
) -> tuple[list[complex], float]:
    """Return the currents and the watts that an element draws from what feeds it."""
    if link == "wire" and element.kind != "transformers":
        ratio = element.volts / above.volts
        return [ratio * one for one in amps], watts
    drawn = watts / eta(element.points, watts / element.capacity) if watts else 0.0
    if link == "converter":  # a rectifier draws evenly, at a power factor of 0.99
        turn = PHASES["split" if above.split else "wye"]
        poles = above.poles
        return [turn[p] * drawn / (0.99 * above.volts * len(poles)) if p in poles else 0j for p in range(3)], drawn
    lost = drawn / watts if watts else 1.0
    if link == "wire":
        return [one * element.volts / above.volts * lost for one in amps], drawn
    # A winding of the primary lies between two lines, 30 degrees ahead of the line to neutral.
    turned = cmath.exp(1j * math.pi / 6) * lost * element.volts / (above.volts * math.sqrt(3))
    winding = [one * turned for one in amps]
    return [winding[k] - winding[k - 1] for k in range(3)], drawn


# --- questions ---------------------------------------------------------------------------------------


def answer(case: Table, key: str) -> Any:
    suppose = case.get("suppose", {})
    if key == "note":
        return case["answer"][key]  # a word; `tests/power/test_cases.py` says whether it is met
    impossible = refusal(case["site"], suppose)
    if key == "refused":
        return impossible
    assert not impossible, f"{case['id']}: {impossible}"
    site = Site(case["site"], suppose)
    named = [*site.tree.get("budgets", {}), *site.nodes, *site.circuits]
    name = max((one for one in named if key.startswith(f"{one}.")), key=len)
    what = key.removeprefix(f"{name}.")
    lost = list(suppose.get("lose", []))
    if name in site.tree.get("budgets", {}) and what == "kw":
        named = site.tree["budgets"][name]["circuits"]
        return sum(site.flow(lost)[one][1] for one in named) / 1000
    if name in site.nodes:
        return of_node(site, site.nodes[name], what, lost)
    circuit = site.circuits[name]
    phasors, watts = site.flow(lost)[name]
    top = max(abs(x) for x in phasors)
    match what.split("."):
        case ["amps", pole]:
            return abs(phasors[POLES.index(pole)])
        case ["neutral"]:
            return abs(sum(phasors))
        case ["watts"]:
            return watts
        case ["limit"]:
            return circuit.limit
        case ["rating"]:
            return circuit.rating
        case ["ratio"]:
            return top / circuit.rated
        case ["fits"]:
            return top <= circuit.limit * 1.0001
        case ["survivor"]:
            return site.survivor(name)
        case ["survives"]:
            return site.survivor(name) <= circuit.limit * 1.0001
        case ["trip"]:
            return trip(circuit, top)
        case ["at_once"]:
            return at_once(circuit, top)
        case ["cap"]:
            return cap_of(site, circuit, lost)
        case ["cap_accepted"]:
            floors = [n.floor for n in site.nodes.values() if n.floor]
            return cap_of(site, circuit, lost) >= max(floors, default=1)
        case ["breaker"]:
            return breaker_of(circuit, top)
        case ["most", node]:
            return most(case, name, node)
        case _:
            raise KeyError(key)


def possible_volts(volts: float) -> bool:
    """Return whether these are mains between 90 and 1,000 V, or a busbar of 40 to 60 V."""
    return 90 <= volts <= 1000 or 40 <= volts <= 60


def refusal(text: str, suppose: Table) -> str:
    """Return the place of the first setting that can't be; empty where all can."""
    tree = tomllib.loads(text)
    if (region := tree.get("region")) is not None and region not in MAINS:
        return "region"
    room = tree.get("site", {})
    if room.get("pue", 1.0) < 1:
        return "site.pue"
    if not -40 <= room.get("ambient_c", 30) <= 70:
        return "site.ambient_c"
    rows = [(f"{kind}.{name}", spec) for kind in ("panels", "circuits") for name, spec in tree.get(kind, {}).items()]
    for place, spec in rows:
        if "volts" in spec and not possible_volts(spec["volts"]):
            return f"{place}.volts"
        if "breaker" in spec and not 0.5 <= number(spec["breaker"]) <= 6300:
            return f"{place}.breaker"
        feeders = {**tree.get("panels", {}), **tree["circuits"]}
        above = next((feeders[one] for one in _inputs(spec) if one in feeders), None)
        if above and "breaker" in above and number(spec["breaker"]) > number(above["breaker"]):
            return f"{place}.breaker"
        for key in ("continuous", "pf", "grouping", "sag"):
            if not 0 < spec.get(key, 1) <= 1:
                return f"{place}.{key}"
    for name, node in tree.get("nodes", {}).items():
        cords = node.get("cords", [])
        if cords and all("share" in cord for cord in cords) and abs(sum(c["share"] for c in cords) - 1) > 0.001:
            return f"nodes.{name}.cords"
        count = SYSTEMS.get(node.get("profile", ""), {}).get("count") or node.get("supply", {}).get("count")
        if count and sum(Site._supplies(cord.get("psu")) or 0 for cord in cords) > count:
            return f"nodes.{name}.cords"
    return unfit_supply(Site(text, suppose))


def unfit_supply(site: Site) -> str:
    """Return the node whose supplies do not take the volts of their outlet: 90 to 264 V of a desktop's
    supply, 180 to 264 V of a DGX system's. Those of racks and of given `points` are not judged."""
    for name, circuit, _, poles, _ in site.cords:
        spec = site.nodes[name].spec
        if spec.get("profile", "").startswith("dgx-") and spec["profile"] != "dgx-spark":
            least = 180
        elif "gpus" in spec and "points" not in spec.get("supply", {}):
            least = 90
        else:
            continue
        volts = site.circuits[circuit].volts
        between = volts * (2 if site.circuits[circuit].split else math.sqrt(3))
        offered = {1: [volts], 2: [between], 3: [volts, between]}[len(poles)]
        if not any(least <= one <= 264 for one in offered):
            return f"nodes.{name}"
    return ""


def of_node(site: Site, node: Node, what: str, lost: list[str]) -> Any:
    gone = site.dead(lost)
    drawn = site.node_watts(node, gone)
    if what == "watts":
        return drawn
    if what == "dark":
        return drawn == 0
    if what == "supply_load":
        working = site.working(node, gone)
        dc = node.behind(drawn) if node.fixed is not None else node.inside()
        return dc / (node.each * min(working, node.needed))
    raise KeyError(what)


def trip(circuit: Circuit, amps: float) -> str:
    """Return what the breaker's standard promises; `unknown` where nothing does."""
    if circuit.curve not in TRIPS:
        return "unknown"
    hold, must = TRIPS[circuit.curve]
    if amps <= hold * circuit.rating:
        return "never"
    return "must" if amps >= must * circuit.tested else "may"


def cold(curve: str, ambient: float) -> float:
    """Return what a colder ambient than that of its test adds to the current of a device."""
    return max(1.0, 1 - 0.005 * (ambient - TESTED_C.get(curve, ambient)))


def at_once(circuit: Circuit, amps: float) -> str:
    """Return whether it opens within 0.1 s; the least current of its range is taken over the derated rating."""
    may, must = MAGNETIC[circuit.curve]
    return "no" if amps < may * circuit.rating else "must" if amps >= must * circuit.tested else "may"


def cap_of(site: Site, circuit: Circuit, lost: list[str]) -> int:
    """Return the whole watts per GPU at which the circuit, also after a loss, holds its limit."""
    grouped = circuit.group is not None

    def load(cap: float) -> float:
        now = site.highest(circuit.name, lost, cap)
        return max(now, site.survivor(circuit.name, cap)) if grouped else now

    best = 0
    low, high = 0, 2000
    while low <= high:
        mid = (low + high) // 2
        if load(mid) <= circuit.limit:
            best, low = mid, mid + 1
        else:
            high = mid - 1
    return best


def breaker_of(circuit: Circuit, amps: float) -> int:
    part = circuit.limit / circuit.rated
    sizes = NEC_SIZES if circuit.american else IEC_SIZES
    return next(size for size in sizes if amps <= size * part)


def most(case: Table, circuit: str, node: str) -> int:
    count = 0
    while True:
        text = re.sub(rf"(nodes\.{node}\b[^\n]*gpus = \")\d+x", rf"\g<1>{count + 1}x", case["site"])
        site = Site(text, case.get("suppose", {}))
        if site.highest(circuit, []) > site.circuits[circuit].limit:
            return count
        count += 1


# --- files -------------------------------------------------------------------------------------------


def files() -> list[Path]:
    return sorted(HERE.glob("*.toml"))


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, int):
        return str(value)
    value = 0.0 if abs(value) < 1e-6 else value
    return f"{value:.5g}" if abs(value) < 1e5 else f"{value:.0f}"


def solved(path: Path) -> str:
    """Return the file with every answer as it is worked out here."""
    text = path.read_text()
    cases = tomllib.loads(text)["case"]
    lines, number, inside = [], -1, False
    for line in text.splitlines():
        match = re.match(r'"?([^"=]+?)"? = ', line) if inside else None
        if line == "[[case]]":
            number, inside, match = number + 1, False, None
        elif line == "[case.answer]":
            inside = True
        lines.append(f"{match[0]}{shown(answer(cases[number], match[1]))}" if match else line)
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a committed answer differs")
    parser.add_argument("--write", action="store_true", help="write the answers")
    asked = parser.parse_args()
    wrong = 0
    for path in files():
        text = solved(path)
        if text == path.read_text():
            continue
        wrong += 1
        if asked.write:
            path.write_text(text)
        else:
            old, new = path.read_text().splitlines(), text.splitlines()
            print(*(f"{path.name}: {a} -> {b}" for a, b in zip(old, new, strict=False) if a != b), sep="\n")
    return int(wrong > 0 and not asked.write)


if __name__ == "__main__":
    sys.exit(main())
