"""Small sites that the tests plan with."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import partial

from alerts.engine.instant import firing_ids
from alerts.rules.rule import Rule, load
from api.power import CircuitPlan, PlanResult
from power.plan.plan import Suppose, make
from power.site.decode import decode

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


RULES = load()


def planned(text: str, suppose: Suppose | None = None, rules: Sequence[Rule] = RULES) -> PlanResult:
    """Return the plan of a site that is written as TOML."""
    site = decode("site.toml", tomllib.loads(text))
    return make("site.toml", site, suppose or Suppose(), partial(firing_ids, rules))


def circuit(plan: PlanResult, name: str) -> CircuitPlan:
    """Return one circuit of a plan."""
    return next(c for c in plan.circuits if c.id == name)
