"""Owners of alerts, by `[[owners]]`: from the settings to the engine's alerts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aggregator.config import AggregatorConfig
from aggregator.register.owners import OwnerEntry, Owners, check_owners
from alerts.engine.engine import RuleEngine
from alerts.rules.rule import load
from api.alerts import Alert, AlertState
from kilowatch.settings import load as load_settings
from power.snapshot.snapshot import PowerSnapshot
from telemetry.devices import Event, Gpu
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet
from telemetry.wire.inventory import LABEL_FACT, Inventory
from tests.power.stage import Stage

SETTINGS = """
[[owners]]
name = "network team"
rules = ["port_*"]
[[owners]]
name = "facility, +49 30 1234"
circuits = ["r1*"]
[[owners]]
name = "Ada"
match = { label = { partition = "gpu-long" } }
[[owners]]
name = "rack r2"
match = { label = { rack = "r2" } }
[[owners]]
name = "platform"
match = { node = "dgx-*" }
[[owners]]
name = "monitoring"
rules = ["bus_lost", "delivery_*"]
"""


def entries(text: str = SETTINGS) -> tuple[OwnerEntry, ...]:
    """Return the entries of settings."""
    return msgspec.toml.decode(text, type=dict[str, tuple[OwnerEntry, ...]])["owners"]


def inventory(node: str, **labels: str) -> Inventory:
    """Return a node with labels of its own."""
    host = {f"{LABEL_FACT}{name}": value for name, value in labels.items()}
    return Inventory(node=node, host=host, gpus=(Gpu(uuid=f"GPU-{node}", index=0, name="H100"),))


@pytest.mark.parametrize(
    ("rule", "node", "rack", "name", "owner"),
    [
        ("gpu_lost", inventory("dgx-1"), "r1", "", "platform"),
        ("gpu_lost", inventory("dgx-1"), "r2", "", "rack r2"),
        ("gpu_lost", inventory("dgx-1", partition="gpu-long"), "r2", "", "Ada"),
        ("port_down", inventory("dgx-1", partition="gpu-long"), "r2", "", "network team"),
        ("gpu_lost", inventory("gb-1"), "r1", "", ""),
        ("gpu_lost", inventory("gb-1", owner="Grace"), "r1", "", "Grace"),
        ("gpu_lost", inventory("dgx-1", owner="Grace"), "r1", "", "platform"),
        ("circuit_overload", None, "", "r1-a", "facility, +49 30 1234"),
        ("circuit_overload", None, "", "x1", ""),
        ("bus_lost", None, "", "kilowatch", "monitoring"),
    ],
)
def test_the_first_entry_that_fits_names_the_owner(
    rule: str, node: Inventory | None, rack: str, name: str, owner: str
) -> None:
    assert Owners(entries()).of(rule, node, {"rack": rack}, name) == owner


def test_an_entry_for_all_circuits_is_for_no_gpu() -> None:
    owners = Owners(entries('[[owners]]\nname = "facility"\ncircuits = ["*"]\n'))
    assert owners.of("circuit_overload", None, {}, "r1-a") == "facility"
    assert owners.of("gpu_lost", inventory("dgx-1"), {}, "") == ""


def fired(
    engine: RuleEngine,
    fleet: Fleet,
    now: float,
    events: tuple[Event, ...] = (),
    snapshots: tuple[PowerSnapshot, ...] = (),
) -> list[Alert]:
    """Return the alerts that began to fire."""
    found = engine.evaluate(fleet, now, int(now * 1e9), list(events), snapshots=list(snapshots))
    return [one for one in found if one.state is AlertState.FIRING]


def test_an_alert_of_the_engine_has_its_owner_and_matchers_see_it() -> None:
    fleet, engine = Fleet(), RuleEngine(load())
    fleet.place(inventory("dgx-1"))
    engine.texts.owner_of = Owners(entries()).of
    engine.texts.node_labels = {"dgx-1": {"rack": "r2"}}
    fired(engine, fleet, 1000.0)
    lost = Event(id="1-1", node="dgx-1", at=2 * 10**12, kind="gpu_lost", gpu="GPU-dgx-1")
    (alert,) = [one for one in fired(engine, fleet, 2000.0, (lost,)) if one.rule == "gpu_lost"]
    assert (alert.owner, alert.remediation) == ("rack r2", "reboot")
    labels = alert.matched_labels()
    assert (labels["owner"], labels["remediation"]) == ("rack r2", "reboot")


def test_an_alert_of_a_circuit_has_the_owner_of_its_name() -> None:
    stage = Stage('[circuits.r1-a]\nbreaker = 20\nvolts = 120\nnodes = ["n"]\n[nodes.n]\nwatts = 3000\n')
    stage.engine.texts.owner_of = Owners(entries()).of
    stage.play(30)
    owners = {one.owner for one in stage.engine.alerts() if one.rule == "circuit_overload"}
    assert owners == {"facility, +49 30 1234"}


COVERED = [
    ("", 'rules = ["port_*"]'),
    ('rules = ["port_*"]', 'rules = ["port_*"]'),
    ('rules = ["port_*", "gpu_*"]', 'rules = ["gpu_lost", "port_down"]\nmatch = { node = "n*" }'),
    ('circuits = ["rack-*"]', 'circuits = ["rack-1"]'),
    ('match = { node = "dgx-*" }', 'match = { node = "dgx-0?", label = { rack = "r1" } }'),
    ('match = { node = "dgx-*" }', 'match = { node = "dgx-[0-4]" }'),
    ('match = { role = "gpu" }', 'match = { role = "gpu", product = "DGX*" }'),
]
"""Entries above and below of which the first is for all that the second is for."""


@pytest.mark.parametrize(
    ("above", "below"),
    [
        ('rules = ["port_*"]', 'rules = ["gpu_lost", "port_down"]'),
        ('rules = ["port_*"]', ""),
        ('circuits = ["rack-*"]', 'match = { node = "n*" }'),
        ('match = { node = "dgx-?" }', 'match = { node = "dgx-*" }'),
        ('match = { node = "dgx-[0-4]" }', 'match = { node = "dgx-7" }'),
        ('match = { node = "*4]" }', 'match = { node = "dgx-[0-4]" }'),
        ('match = { label = { rack = "r1" } }', 'match = { node = "dgx-*" }'),
        ('match = { role = "gpu" }', 'match = { node = "dgx-*" }'),
    ],
)
def test_an_entry_that_some_alert_reaches_is_none_too_many(tmp_path: Path, above: str, below: str) -> None:
    path = tmp_path / "kilowatch.toml"
    site = "[power.circuits.rack-1]\nbreaker = 16\nvolts = 230\n"
    path.write_text(f'{site}[[owners]]\nname = "a"\n{above}\n[[owners]]\nname = "b"\n{below}\n')
    settings = load_settings(path).aggregator
    settings.check()
    assert [one.name for one in settings.owners] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('name = " "', "owners[0].name: it names nobody"),
        ('name = "a"\nrules = ["port_dwn"]', "owners[0].rules: 'port_dwn' fits no rule"),
        ('name = "a"\nrules = ["port_dwn"]', "Did you mean 'port_down'?"),
        ('name = "a"\ncircuits = ["rack-9"]', "owners[0].circuits: 'rack-9' fits no circuit"),
        ('name = "a"\nmatch = {}', "owners[0].match: it says nothing"),
        ('name = "a"\nmatch = { rack = "r1" }', "owners[0].match.rack: there is no such key"),
        ('name = "a"\nlabels = "r1"', "owners[0].labels: there is no such key"),
        ('name = "a"\ncircuits = ["rack-1"]\nmatch = { node = "n" }', "no alert is about a node and a circuit"),
        *(
            (f'name = "a"\n{wide}\n[[owners]]\nname = "b"\n{narrow}', "owners[1]: owners[0], 'a', is for all of these")
            for wide, narrow in COVERED
        ),
    ],
)
def test_an_entry_that_can_not_work_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "kilowatch.toml"
    path.write_text(f"[power.circuits.rack-1]\nbreaker = 16\nvolts = 230\n[[owners]]\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(path).aggregator.check()
    assert words in str(caught.value)


def test_a_supply_may_have_an_owner_by_a_node_that_stands_in_its_circuit_alone() -> None:
    power = {"circuits": {"office": {"breaker": 20, "nodes": ["rig"]}}}
    check_owners((OwnerEntry(name="Ada", circuits=("rig",)),), power, list)
    with pytest.raises(ConfigError, match="'rgi' fits no circuit"):
        check_owners((OwnerEntry(name="Ada", circuits=("rgi",)),), power, list)


def test_the_settings_hand_their_owners_to_the_aggregator(tmp_path: Path) -> None:
    path = tmp_path / "kilowatch.toml"
    path.write_text(SETTINGS)
    config: AggregatorConfig = load_settings(path).aggregator
    config.check()
    assert config.owners == entries()
