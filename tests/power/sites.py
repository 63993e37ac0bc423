"""Small sites that the tests plan with."""

from __future__ import annotations

import tomllib

from power.plan.plan import Suppose, make
from power.plan.result import CircuitPlan, PlanResult
from power.site.config import decode

DGX_FEED = """
[circuits.feed]
breaker = 60
volts = 208
poles = 3
wiring = "3ph-wye"
pf = {pf}
nodes = ["dgx-01", "dgx-02"]
"""
RIG = """
[circuits.office]
breaker = {amps}
volts = {volts}
pf = 0.98
[nodes.rig1]
gpus = "{gpus}"
cords = [{{ circuit = "office" }}]
"""
PAIR = """
[circuits.a]
breaker = 20
volts = 240
pf = 1.0
redundancy = { group = "g", role = "A" }
[circuits.b]
breaker = 20
volts = 240
pf = 1.0
redundancy = { group = "g", role = "B" }
[nodes.n]
watts = 4320
cords = [{ circuit = "a" }, { circuit = "b" }]
"""


def planned(text: str, suppose: Suppose | None = None) -> PlanResult:
    """Return the plan of a site that is written as TOML."""
    return make("site.toml", decode("site.toml", tomllib.loads(text)), suppose or Suppose())


def circuit(plan: PlanResult, name: str) -> CircuitPlan:
    """Return one circuit of a plan."""
    return next(c for c in plan.circuits if c.id == name)
