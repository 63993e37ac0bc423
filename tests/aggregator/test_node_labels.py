"""Where nodes stand: circuits and racks on alerts, and another mapping only when something moved."""

from __future__ import annotations

from msgspec.structs import replace

from aggregator.alerting.node_labels import NodeLabels
from power.site.decode import decode
from power.site.layout import lay_out
from telemetry.fleet import Fleet
from tests.aggregator.fake_view import inventory

SITE = {
    "region": "US",
    "circuits": {
        "a": {"breaker": 60, "volts": 208, "poles": 3, "wiring": "3ph-wye", "rack": "R7",
              "redundancy": {"group": "rack", "role": "A"}},
        "b": {"breaker": 60, "volts": 208, "poles": 3, "wiring": "3ph-wye",
              "redundancy": {"group": "rack", "role": "B"}},
        "wall": {"breaker": 15, "nodes": ["n2"]},
    },
    "nodes": {
        "n1": {"profile": "dgx-h100", "cords": [{"psu": "1-3", "circuit": "a"},
                                                {"psu": "4-6", "circuit": "b"}]},
        "n2": {"gpus": "1x RTX 5090"},
    },
}  # fmt: skip


def test_a_node_stands_on_its_circuits_and_in_its_rack() -> None:
    fleet = Fleet()
    fleet.place(inventory("n1"))
    fleet.place(replace(inventory("n3"), host={"rack": "R9"}))
    layout = lay_out("power", decode("power", {"power": SITE}))
    found = NodeLabels().of(fleet, layout)
    assert found == {"n1": {"circuits": "a,b", "rack": "R7"}, "n2": {"circuits": "wall"}, "n3": {"rack": "R9"}}


def test_nothing_moves_until_something_has_moved() -> None:
    """The rules read the mapping anew when it is another one."""
    fleet, where = Fleet(), NodeLabels()
    fleet.place(replace(inventory("n1"), host={"rack": "R1"}))
    first = where.of(fleet, None)
    assert where.of(fleet, None) is first
    fleet.place(inventory("n2"))
    assert where.of(fleet, None) is first  # it says nothing of itself
    fleet.place(replace(inventory("n3"), host={"rack": "R2"}))
    assert where.of(fleet, None) == {"n1": {"rack": "R1"}, "n3": {"rack": "R2"}}
