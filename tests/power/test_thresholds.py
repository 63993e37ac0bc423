"""Each threshold stands once: a plan and a live alert move together when it changes."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from alerts.engine.instant import firing_ids
from alerts.rules.levels import Above, Below
from alerts.rules.rule import FOLDER, Rule, conditions_of, read
from api.power import SnapshotKind
from kilowatch.__main__ import main
from power import thresholds
from power.plan.plan import Suppose, make
from power.site.decode import decode
from power.snapshot.snapshot import PowerSnapshot
from tests.power.stage import RULES, Stage

SITE = """
[panels.main]
breaker = 60
volts = 208
wiring = "3ph-wye"
budget_kw = 12

[circuits.a]
breaker = 20
volts = 240
pf = 1.0
plug_amps = 10
redundancy = { group = "g", role = "A" }

[circuits.b]
breaker = 20
volts = 240
pf = 1.0
redundancy = { group = "g", role = "B" }

[circuits.rows]
parent = "main"
breaker = 30
volts = 208
poles = 3
wiring = "3ph-wye"
pf = 1.0
neutral_amps = 15

[nodes.n]
watts = 4320
cords = [{ circuit = "a", share = 0.75 }, { circuit = "b", share = 0.25 }]
supply = { watts = 3000, count = 2, needed = 2 }

[nodes.one]
watts = 2400
cords = [{ circuit = "rows", phase = "L1" }]

[nodes.two]
watts = 600
cords = [{ circuit = "rows", phase = "L2" }]

[sources.grid]
kw = 20

[sources.gen]
kw = 8
generator = true

[panels.ga]
volts = 208
wiring = "3ph-wye"
breaker = 60
source = "grid"

[panels.gb]
volts = 208
wiring = "3ph-wye"
breaker = 60
source = "gen"

[transfers.ats]
preferred = "ga"
alternate = "gb"

[ups.u]
watts = 5000
parent = "ats"
modules = 2

[circuits.behind]
parent = "u"
breaker = 20
poles = 3

[nodes.three]
watts = 2000
cords = [{ circuit = "behind" }]

[nodes.hot]
gpus = "4x RTX 5090"
cords = [{ circuit = "office" }]

[circuits.office]
breaker = 15
volts = 120
pf = 0.98
"""
"""Each quantity that a plan evaluates is known on some row."""
WATTS = {"n": 4320.0, "one": 3000.0, "two": 1200.0, "hot": 1900.0, "three": 2000.0}
PLANNED = {
    "budget_power",
    "budget_power_full",
    "budget_power_near",
    "circuit_commitment",
    "circuit_commitment_rated",
    "circuit_continuous",
    "circuit_cords",
    "circuit_failover",
    "circuit_failover_limit",
    "circuit_failover_rated",
    "circuit_limit",
    "circuit_load",
    "circuit_neutral",
    "circuit_neutral_full",
    "circuit_overload",
    "circuit_phases",
    "circuit_phases_critical",
    "circuit_phases_uneven",
    "circuit_plug",
    "circuit_thermal_hot",
    "circuit_thermal_warm",
    "supply_load",
    "supply_overload",
    "ups_failover",
    "ups_load",
    "ups_overload",
}


@cache
def scene() -> tuple[Stage, dict[SnapshotKind, PowerSnapshot]]:
    """Return a live site after minutes of steady load, and what a plan of the same load evaluates."""
    stage = Stage(SITE, limits={"hot": 4 * 575.0}, gpus=4)
    stage.play(150, wall=WATTS)
    seen: dict[SnapshotKind, PowerSnapshot] = {}

    def record(snapshots):  # type: ignore[no-untyped-def]
        seen.update({snapshot.kind: snapshot for snapshot in snapshots})
        return firing_ids(RULES, snapshots)

    site = decode("site.toml", tomllib.loads(SITE))
    make("site.toml", site, Suppose(watts=WATTS), record, stage.live.breaker_heat.heat)
    return stage, seen


def cases() -> list[tuple[Rule, Above | Below]]:
    """Return each rule and comparison of `PLANNED`."""
    return [
        (rule, part)
        for rule in RULES
        if rule.name in PLANNED
        for part in conditions_of(rule.when)
        if isinstance(part, Above | Below)
    ]


def test_a_plan_evaluates_these_rules() -> None:
    """No rule is lost because a quantity of it was renamed on one side."""
    columns = {name for snapshot in scene()[1].values() for name in snapshot.columns}
    assert {
        rule.name
        for rule in RULES
        if all(name in columns for part in conditions_of(rule.when) for name in part.metrics())
        and any(isinstance(part, Above | Below) for part in conditions_of(rule.when))
    } == PLANNED


@pytest.mark.parametrize(
    ("rule", "part"), cases(), ids=[f"{rule.name}-{part.metric}-{part.level}" for rule, part in cases()]
)
def test_a_changed_threshold_moves_the_plan_and_the_live_alert(rule: Rule, part: Above | Below) -> None:
    """Just below and just above the value of the moment, on every row that both know."""
    stage, planned = scene()
    kind = rule.table.snapshot_kind
    assert kind is not None
    assert stage.snapshots is not None
    live = next(snapshot for snapshot in stage.snapshots.all() if snapshot.kind is kind)
    rows = [
        name
        for name in live.names
        if 0 < live.column(part.metric)[live.names.index(name)] < np.inf
        and 0 < planned[kind].column(part.metric)[planned[kind].names.index(name)] < np.inf
    ]
    assert rows, f"{part.metric} is known on no row of both"
    for row in rows:
        value = live.column(part.metric)[live.names.index(row)]
        for factor, expected in ((0.97, isinstance(part, Above)), (1.03, isinstance(part, Below))):
            level = msgspec.structs.replace(part, level=float(factor * value), clear=None)
            mutant = msgspec.structs.replace(rule, when=level)
            for snapshot in (live, planned[kind]):
                fires = row in firing_ids([mutant], [snapshot])[kind]
                assert fires == expected, f"{row}: {value} against {level.level}"


NAMED = sorted(set(re.findall(r'(?:level|clear) = "([A-Z_]+)"', (FOLDER / "circuit_rules.toml").read_text())))


@pytest.mark.parametrize("name", NAMED)
def test_a_named_threshold_is_the_number_of_its_rule(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule file reads a level in capitals from `power.thresholds`; no such number stands twice."""
    before = {rule.name: rule.when for rule in RULES}
    monkeypatch.setattr(thresholds, name, getattr(thresholds, name) * 0.999)
    copy = shutil.copy(FOLDER / "circuit_rules.toml", tmp_path)  # the shipped file was read before
    assert [rule for rule in read(Path(copy)) if rule.when != before[rule.name]]


def test_every_threshold_of_a_rule_is_named() -> None:
    """What stands in `power.thresholds` and is no definition of a quantity is in the rule file by name."""
    source = (FOLDER.parents[1] / "power" / "thresholds.py").read_text()
    levels, _, definitions = source.partition("# Definitions of quantities")
    assert definitions
    assert sorted(re.findall(r"\b([A-Z][A-Z_]+)\b(?=[^\n]* = [\d.])", levels)) == NAMED


MASKED = {
    "circuit_continuous_ratio": ("CONTINUOUS", "LOAD_CLEAR"),
    "circuit_overload_ratio": ("OVERLOAD", "OVERLOAD_CLEAR"),
    "circuit_survivor_continuous_ratio": ("SURVIVOR", "SURVIVOR_CLEAR"),
    "circuit_plug_ratio": ("PLUG", "PLUG_CLEAR"),
    "supply_load_ratio": ("SUPPLY_OVER", "SUPPLY_CLEAR"),
    "ups_load_ratio": ("UPS_OVER", "UPS_CLEAR"),
    "budget_level_ratio": ("BUDGET_FULL", "BUDGET_CLEAR"),
}
"""Quantities that are unknown where only assumed power exceeds a level of their rules."""
HALF_SILENT = """
[circuits.a]
breaker = 14
volts = 240
pf = 1.0
plug_amps = 15
redundancy = { group = "g", role = "A" }
[circuits.b]
breaker = 14
volts = 240
pf = 1.0
plug_amps = 15
redundancy = { group = "g", role = "B" }
[budgets.room]
circuits = ["a", "b"]
kw = 6.5
[ups.rack]
watts = 6500
circuits = ["a", "b"]
[nodes.heard]
watts = 2400
cords = [{ circuit = "a" }, { circuit = "b" }]
[nodes.hushed]
gpus = "4x RTX 5090"
host_watts = 1500
supply = { watts = 1600, count = 2, needed = 2 }
cords = [{ circuit = "a" }, { circuit = "b" }]
"""


@pytest.mark.parametrize("quantity", MASKED)
def test_the_live_state_masks_at_the_level_of_the_rule(quantity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assumed power alone brings it above; with a lower level, what is measured does, and it is known."""
    stage = Stage(HALF_SILENT, limits={"hushed": 4 * 575.0}, gpus=4)
    stage.play(20, gpu={"hushed": 100.0})
    stage.hush("hushed")
    stage.play(60)
    snapshots = stage.snapshots.all() if stage.snapshots else ()
    (row,) = {s.names[-1] for s in snapshots if quantity in s.columns}
    assert np.isnan(stage.value(quantity, row))
    level, clear = MASKED[quantity]
    monkeypatch.setattr(thresholds, level, -1.0)
    monkeypatch.setattr(thresholds, clear, -1.0)
    stage.play(1)
    assert stage.value(quantity, row) >= 0


def test_a_plan_of_an_aggregators_file_evaluates_its_own_rules(tmp_path: Path) -> None:
    """A rule that an operator replaced counts in `kilowatch plan --config` as it does live."""
    shipped = tomllib.loads((FOLDER / "circuit_rules.toml").read_text())["rule"]
    text = {rule["name"]: rule for rule in shipped}["circuit_load"]["description"]
    (tmp_path / "own_rules.toml").write_text(
        '[[rule]]\nname = "circuit_load"\nid = "E01"\ntable = "circuit"\nseverity = "ticket"\nremediation = "facility"\n'
        'when = { type = "above", metric = "circuit_continuous_ratio", level = 0.2 }\n'
        f'summary = "{{where}}"\ndescription = """{text}"""\nrunbook = "circuit-load"\n'
    )
    settings = tmp_path / "aggregator.toml"
    circuit = "[power.circuits.a]\nbreaker = 20\nvolts = 240\npf = 1.0\nnodes = ['n']\n[power.nodes.n]\nwatts = 960\n"
    settings.write_text(f'[aggregator]\nrules = ["{tmp_path / "own_rules.toml"}"]\n{circuit}')
    for rules, expected in ((True, ["E01"]), (False, [])):
        if not rules:
            settings.write_text(circuit)
        found = CliRunner().invoke(main, ["plan", "--config", str(settings), "--json"])
        assert json.loads(found.stdout)["circuits"][0]["alerts"] == expected
