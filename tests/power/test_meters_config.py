"""Meters as people write them: the long form, the short one, and every mistake with its cure."""

from __future__ import annotations

import re
import tomllib

import pytest

from power.meters.base import Attachment
from power.meters.config import TYPES
from power.meters.redfish import Redfish
from power.meters.shelly import Shelly
from power.site.attach import attach
from power.site.config import PowerConfig
from power.site.decode import decode
from telemetry.errors import ConfigError
from tests.conftest import ROOT

LAB = """
[circuits.lab]
breaker = 20
nodes = ["rig1"]
{lab}
[circuits.R12-A]
breaker = 60
volts = 208
poles = 3
[circuits."R12-A/b1"]
parent = "R12-A"
breaker = 20
phase = "L1"
[ups.desk]
watts = 900
nodes = ["rig1"]
{rest}
"""


def site(rest: str = "", lab: str = "") -> PowerConfig:
    """A site with a circuit, a feed with a branch, a node and a UPS."""
    return decode("site.toml", tomllib.loads(LAB.format(rest=rest, lab=lab)))


def attachments(one: PowerConfig) -> dict[str, tuple[Attachment, ...]]:
    """What each meter is on."""
    return {meter.name: meter.attachments for meter in attach("site.toml", one)}


def test_a_plug_in_one_word_on_the_circuit() -> None:
    found = site(lab='meter = "tasmota:tele/plug-lab/SENSOR"')
    assert attachments(found) == {"circuits.lab": (Attachment("", "circuit", "lab"),)}
    part = site(lab='meter = "shelly:strip-1#switch:2"')
    assert attachments(part) == {"circuits.lab": (Attachment("switch:2", "circuit", "lab"),)}
    node = site(rest='[nodes.rig1]\nwatts = 500\nmeter = "nut:10.0.0.5:3494/desk"')
    assert attachments(node) == {"nodes.rig1": (Attachment("", "node", "rig1"),)}


def test_parts_on_poles_and_names_with_dots() -> None:
    found = site(
        '[meters.em]\ntype = "mqtt"\npreset = "shelly-3em"\ntopic = "em-x"\n'
        'map = { a = "R12-A.L1", b = "R12-A.L2", c = "R12-A.L3" }\n'
        '[meters.pdu]\ntype = "redfish"\nurl = "https://10.0.0.9"\n'
        'map = { "RackPDUs/1/Branches/A" = "R12-A/b1" }\n'
        '[meters.all]\ntype = "tasmota"\ntopic = "x"\non = "rig1"\nlimit_amps = 12\n'
    )
    assert attachments(found) == {
        "em": (
            Attachment("a", "circuit", "R12-A", "L1"),
            Attachment("b", "circuit", "R12-A", "L2"),
            Attachment("c", "circuit", "R12-A", "L3"),
        ),
        "pdu": (Attachment("RackPDUs/1/Branches/A", "circuit", "R12-A/b1"),),
        "all": (Attachment("", "node", "rig1"),),
    }
    em = found.meters["em"]
    assert isinstance(em, Shelly)
    assert em.components() == ["em:0"]


def test_controllers_of_many_nodes_are_a_meter_each() -> None:
    text = (
        "[nodes.dgx-01]\nwatts = 10\n[nodes.dgx-02]\nwatts = 10\n"
        '[meters.bmc]\ntype = "redfish"\nhosts = ["dgx-01", "dgx-02"]\nscope = "node"\nevery = "15s"\n'
    )
    found = attach("", site(text))
    assert [(one.name, one.attachments) for one in found] == [
        ("bmc.dgx-01", (Attachment("", "node", "dgx-01"),)),
        ("bmc.dgx-02", (Attachment("", "node", "dgx-02"),)),
    ]
    first = found[0].config
    assert isinstance(first, Redfish)
    assert (first.services(), first.period) == ({"": "https://dgx-01"}, 15.0)


def test_a_meter_that_is_named_from_the_circuit() -> None:
    entry = '[meters.plug]\ntype = "tasmota"\ntopic = "plug"\nbroker = "house"\n[brokers.house]\nhost = "10.0.0.2"\n'
    assert attachments(site(entry, 'meter = "plug"')) == {"plug": (Attachment("", "circuit", "lab"),)}


def test_every_ups_of_a_server_needs_no_target() -> None:
    assert attachments(site('[meters.house]\ntype = "nut"\n')) == {"house": ()}


M = "[meters.m]\n"
PLUG = M + 'type = "tasmota"\ntopic = "x"\n'


@pytest.mark.parametrize(
    ("text", "place", "cure"),
    [
        (M + 'topic = "x"\n', "meters.m.type: the type is missing", "Known: tasmota"),
        (M + 'type = "tasmoto"\n', "meters.m.type", "'tasmota'"),
        (M + 'type = "snmp"\nhost = "h"\n', "meters.m.type: SNMP", "snmp-ups"),
        (M + 'type = "tasmota"\n', "meters.m: object missing required field `topic`", "docs/meters.md"),
        (PLUG, "meters.m.on: it is on nothing", 'meter = "m"'),
        (PLUG + 'on = "lap"\n', "meters.m.on", "Did you mean 'lab'?"),
        (PLUG + 'on = "node:rig2"\n', "meters.m.on: there is no node", "'rig1'"),
        (PLUG + 'on = "R12-A.L4"\n', "meters.m.on", "'R12-A'"),
        (PLUG + 'on = "lab"\nmap = { 1 = "lab" }\n', "meters.m", "Keep one"),
        (PLUG + 'map = { 1 = "lab", 2 = "lab" }\n', "meters.m: it is on circuit lab twice", "Keep one"),
        (PLUG + 'on = "lab"\nevery = "5 parsecs"\n', "meters.m.every", '"10s"'),
        (PLUG + 'on = "lab"\nevery = 0\n', "meters.m.every", "1 to 3600"),
        (PLUG + 'on = "lab"\nlimit_watts = -5\n', "meters.m.limit_watts", "printed on the plug"),
        (PLUG + 'on = "lab"\nbroker = "hose"\n[brokers.house]\nhost = "h"\n', "meters.m.broker", "'house'"),
        (PLUG + 'on = "lab"\nlimit_wats = 5\n', "meters.m.limit_wats", "'limit_watts'"),
        (PLUG + 'on = "lab"\nsource = "guess"\n', "meters.m.source", "Known: circuit meter, pdu, plug, bmc, ups"),
        (M + 'type = "tasmota"\ntopic = "tele/+/SENSOR"\non = "lab"\n', "meters.m.topic", "a meter of its own"),
        (M + 'type = "shelly"\ntopic = "x"\ncomponent = "relay"\non = "lab"\n', "meters.m.component", "switch:0"),
        (M + 'type = "json"\ntopic = "x"\non = "lab"\nunit = "w"\n', "meters.m.unit", "Known: W"),
        (M + 'type = "json"\ntopic = "x"\non = "lab"\npath = "a..b"\n', "meters.m.path", "ENERGY.Power[0]"),
        (M + 'type = "json"\ntopic = "x"\non = "lab"\nscale = 0\n', "meters.m.scale", "0.1 for tenths"),
        (M + 'type = "json"\ntopic = "x"\non = "lab"\nvalues = [{path = "a"}, {path = "b"}]\n', "meters.m.values[1].unit", "once"),
        (M + 'type = "redfish"\non = "lab"\n', "meters.m: it has neither url nor hosts", "https://"),
        (M + 'type = "redfish"\nurl = "https://root:calvin@h"\non = "lab"\n', "meters.m.url", "password_file"),
        (M + 'type = "redfish"\nurl = "ftp://h"\non = "lab"\n', "meters.m.url", "https://10.0.0.11"),
        (M + 'type = "redfish"\nurl = "https://h"\nmap = { "../x" = "lab" }\n', "meters.m.map", "RackPDUs/1/Branches/A"),
        (M + 'type = "redfish"\nhosts = ["rig9"]\n', "meters.m.hosts: there is no node 'rig9'", "'rig1'"),
        (M + 'type = "redfish"\nurl = "https://h"\non = "lab"\nusername = "u"\n', "meters.m", "both or neither"),
        (M + 'type = "nut"\nups = "a b"\n', "meters.m.ups", "upsc -l"),
        (M + 'type = "nut"\ntimeout = 0\n', "meters.m.timeout", "0.1 to 60"),
        ("meters = 5\n", "meters: it is a section", "[power.meters.plug]"),
        ("[meters]\nm = 5\n", "meters.m: it is a section", "type"),
    ],
)  # fmt: skip
def test_a_mistake_has_a_place_and_a_cure(text: str, place: str, cure: str) -> None:
    """As an operator reads it."""
    tree = tomllib.loads(LAB.format(rest="", lab="")) | tomllib.loads(text)
    with pytest.raises(ConfigError) as caught:
        decode("site.toml", tree)
    assert f"site.toml: {place}" in str(caught.value)
    assert cure in str(caught.value)


@pytest.mark.parametrize(
    ("short", "place", "cure"),
    [
        ("plug", "circuits.lab.meter: there is no meter 'plug'", "a short form"),
        ("tasmota:", "circuits.lab.meter", "its topic or address"),
        ("tesmota:x", "circuits.lab.meter", "'tasmota'"),
    ],
)
def test_a_short_form_that_is_none(short: str, place: str, cure: str) -> None:
    with pytest.raises(ConfigError) as caught:
        site(lab=f'meter = "{short}"')
    assert f"site.toml: {place}" in str(caught.value)
    assert cure in str(caught.value)


def test_a_name_of_two_things_must_say_which() -> None:
    text = '[nodes.lab]\nwatts = 10\n[meters.m]\ntype = "tasmota"\ntopic = "x"\non = "lab"\n'
    with pytest.raises(ConfigError, match='Write "circuit:lab" or "node:lab"'):
        site(text)


PAGE = (ROOT / "docs/meters.md").read_text()


def test_every_type_is_documented() -> None:
    """docs/meters.md has a section for each."""
    assert [kind for kind in TYPES if f'type = "{kind}"' not in PAGE] == []


def test_what_the_page_shows_can_be_pasted() -> None:
    """All its examples together, on the circuits that they name."""
    examples = "".join(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
    around = """
[power.circuits.office]
breaker = 15
[power.circuits.R12-A]
breaker = 60
volts = 208
poles = 3
nodes = ["dgx-01", "dgx-02"]
[power.circuits."R12-A/b1"]
parent = "R12-A"
breaker = 20
phase = "L1"
"""
    found = attach("page", decode("page", tomllib.loads(examples + around)))
    assert {"circuits.lab", "plug-lab", "desk", "odd", "bmc.dgx-01", "pdu", "house"} <= {one.name for one in found}
