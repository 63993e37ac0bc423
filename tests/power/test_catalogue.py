"""The catalogue of GPUs, cards that it does not know, and several models in one node."""

from __future__ import annotations

import tomllib

import pytest

from power.devices.catalogue import CARDS, SYSTEMS, clock_command, find_card, find_system, limit_command
from power.plan.plan import Suppose
from power.report.cluster_parts import parts_of
from power.site.decode import decode
from power.site.layout import lay_out
from power.site.machine import Machine
from telemetry.errors import ConfigError
from tests.power.sites import planned

CIRCUIT = "region = 'US'\n[circuits.a]\nbreaker = 60\nvolts = 240\nnodes = ['rig']\n[nodes.rig]\n"


def machine(node: str) -> Machine:
    """Return the machine of a node's settings."""
    return lay_out("site.toml", decode("site.toml", tomllib.loads(CIRCUIT + node))).machines["rig"]


@pytest.mark.parametrize(
    ("name", "watts"),
    [
        ("RTX 2080 Ti", 250), ("RTX 3060", 170), ("GeForce RTX 3080", 320), ("RTX 3090 Ti", 450),
        ("RTX 4070 SUPER", 220), ("RTX 5060 Ti", 180), ("RTX 5080", 360), ("RTX A6000", 300), ("A6000", 300),
        ("RTX 6000 Ada", 300), ("RTX PRO 6000", 600), ("T4", 70), ("Tesla T4", 70), ("A10", 150), ("A40", 300),
        ("Tesla V100-SXM2-32GB", 300), ("V100 PCIe", 250), ("A100 SXM4", 400), ("NVIDIA A100-SXM4-80GB", 400),
        ("H100 SXM", 700), ("H200 NVL", 600), ("B200 SXM", 1000), ("GB200", 1200), ("MI210", 300),
        ("AMD Instinct MI300X", 750), ("NVIDIA H100 80GB HBM3", 700), ("NVIDIA H200", 700), ("NVIDIA B200", 1000),
        ("NVIDIA GB300", 1400), ("NVIDIA A100-PCIE-40GB", 250), ("NVIDIA GH200 144G HBM3e", 1000),
        ("NVIDIA A10G", 300), ("NVIDIA H800", 700), ("NVIDIA A800-SXM4-80GB", 400), ("NVIDIA A800-SXM4-40GB", 400), ("NVIDIA A800 80GB PCIe", 300),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 600), ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 600),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 300), ("NVIDIA L40S", 350), ("NVIDIA A30", 165),
        ("Tesla V100S-PCIE-32GB", 250), ("NVIDIA RTX 6000 Ada Generation", 300), ("NVIDIA H20", 400), ("NVIDIA A100-PCIE-80GB", 300),
    ],
)  # fmt: skip
def test_cards_are_found_as_people_and_drivers_write_them(name: str, watts: float) -> None:
    """With the board's watts."""
    assert find_card("gpu", name).tdp_watts == watts


def test_every_card_names_its_source_and_a_floor_below_its_limit() -> None:
    """And no id stands twice; every system's card is known."""
    assert len({card.id for card in CARDS}) == len(CARDS) >= 90
    for card in CARDS:
        assert card.source
        assert card.floor_watts is None or 0 < card.floor_watts < card.tdp_watts
    assert {system.card for system in SYSTEMS} - {None} <= {card.id for card in CARDS}


def test_a_card_that_is_not_known_is_described_by_its_watts() -> None:
    """And the error without them says so."""
    with pytest.raises(ConfigError, match="tdp_watts"):
        machine("gpus = '4x Foo 9000'\n")
    found = machine("gpus = '4x Foo 9000'\ntdp_watts = 333\nfloor_watts = 200\nhost_watts = 100\n")
    assert found.card is not None
    assert (found.gpus, found.limit_watts, found.floor_watts) == (4, 333, 200)
    assert found.committed_watts == pytest.approx((4 * 333 + 100) / 0.92)
    assert found.capped(100).limit_watts == 200
    assert machine("gpus = '2x RTX 4090'\ntdp_watts = 480\n").limit_watts == 480


def test_several_models_in_one_node() -> None:
    """Watts add up; a cap binds each model as far as it goes."""
    found = machine("gpus = ['2x RTX 4090', '1x A6000']\nhost_watts = 200\n")
    assert [(part.count, part.card.id) for part in found.parts] == [(2, "rtx-4090"), (1, "rtx-a6000")]
    assert found.gpus == 3
    assert found.committed_watts == pytest.approx((2 * 450 + 300 + 200) / 0.92)
    assert found.floor_watts == 150
    # The A6000 stays at its 300 W, the 4090s come down.
    assert found.capped(350).committed_watts == pytest.approx((2 * 350 + 300 + 200) / 0.92)
    assert found.capped(120).committed_watts == pytest.approx((2 * 150 + 120 + 200) / 0.92)
    assert machine("gpus = ['2x RTX 4090', '1x A6000']\ncap_watts = 350\n").limit_watts == (
        pytest.approx((2 * 350 + 300) / 3)
    )


def test_the_cap_of_several_models_meets_the_limit() -> None:
    """On 15 A of 120 V: a cap that counts the smaller cards with what they draw."""
    text = (
        "region = 'US'\n[circuits.a]\nbreaker = 15\nnodes = ['rig']\n[nodes.rig]\ngpus = ['2x RTX 4090', '1x A6000']\n"
    )
    (plan,) = planned(text).circuits
    assert plan.cap is not None
    assert plan.cap.reachable
    (capped,) = planned(text, Suppose(cap=plan.cap.watts_per_gpu)).circuits
    assert 11.9 < max(capped.amps.values()) <= 12.0


def test_a_configured_cap_below_the_floor_is_planned_with_the_floor() -> None:
    """As `--cap` is, and a notice says so."""
    text = CIRCUIT + "gpus = '2x RTX 5090'\ncap_watts = 100\n"
    assert machine("gpus = '2x RTX 5090'\ncap_watts = 100\n").limit_watts == 400
    assert any("400 W" in notice and "floor" in notice for notice in planned(text).notices)
    assert machine("profile = 'dgx-h100'\ncap_watts = 100\n").limit_watts == 200


def test_the_report_counts_every_model() -> None:
    """Names, memory and watts."""
    site = decode("s", tomllib.loads(CIRCUIT + "gpus = ['2x RTX 4090', '1x A6000', '1x RTX 4090']\n"))
    (part,) = parts_of("s", site)
    assert part.gpus == {"GeForce RTX 4090": 3, "RTX A6000": 1}
    assert sum(gb for _, gb in part.pools_gb) == 3 * 24 + 48


@pytest.mark.parametrize(
    ("node", "cure"),
    [
        ("gpus = []\n", "2x RTX 4090"),
        ("gpus = ['2x RTX 4090', '1x Foo']\n", "tdp_watts"),
        ("gpus = ['2x RTX 4090', '1x A6000']\ntdp_watts = 300\n", "one model"),
        ("gpus = '2x H200, 2x RTX 4090'\n", 'Write ["2x H200", "2x RTX 4090"]'),
        ("gpus = '2x H200 + rtx-4090:2'\n", 'Write ["2x H200", "rtx-4090:2"]'),
        ("gpus = '2x RTX 4090'\ntdp_watts = 0\n", "above 0"),
    ],
)
def test_wrong_lists_have_a_cure(node: str, cure: str) -> None:
    """With the place."""
    with pytest.raises(ConfigError, match=r"nodes\.rig") as caught:
        machine(node)
    assert cure in str(caught.value)


@pytest.mark.parametrize("board", ["mi300x", "mi325x", "mi350x", "mi355x"])
def test_boards_of_amd_draw_their_gpus_and_the_host_of_a_dgx_h100(board: str) -> None:
    system, dgx = find_system("profile", f"{board}-platform"), machine("profile = 'dgx-h100'\n")
    card = find_card("gpu", f"AMD Instinct {board}")
    assert (system.gpus, system.linked_gpus, system.card) == (8, 8, card.id)
    assert system.source
    whole = dgx.host_watts + 8 * card.tdp_watts
    assert system.max_watts == pytest.approx(whole / 0.96, rel=0.01)
    found = machine(f"profile = 'Instinct {board} platform'\n")
    assert found.committed_watts == pytest.approx(system.max_watts)
    assert found.capped(card.tdp_watts / 2).committed_watts < found.committed_watts
    if system.supply_watts:  # what is needed carries the whole
        assert system.needed * system.supply_watts >= system.max_watts


@pytest.mark.parametrize(("id_", "watts"), [("orv3-shelf-18kw", 15_000), ("orv3-shelf-33kw", 27_500)])
@pytest.mark.parametrize("volts", [415, 480])
def test_a_power_shelf_carries_what_it_does_with_one_rectifier_less(id_: str, watts: float, volts: int) -> None:
    """On 240 and on 277 V to neutral; with one rectifier dead it is full."""
    text = f"region = 'US'\n[circuits.o]\nbreaker = 60\npoles = 3\nvolts = {volts}\n[nodes.s]\nprofile = '{id_}'\ncords = [{{ circuit = 'o' }}]\n"
    found = lay_out("site.toml", decode("site.toml", tomllib.loads(text))).machines["s"]
    assert found.dc(found.committed_watts) == pytest.approx(watts, rel=1e-4)
    node = planned(text, Suppose(lose=("s.psu-6",))).nodes[0]
    assert node.supply_load == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(ConfigError, match="200 to 277 V"):
        lay_out(
            "site.toml",
            decode(
                "site.toml",
                tomllib.loads(
                    text.replace(str(volts), "208")
                    .replace("poles = 3", "poles = 1")
                    .replace("volts = 208", "volts = 120")
                ),
            ),
        )


@pytest.mark.parametrize(
    ("id_", "watts"), [("gb200-nvl72-132kw", 132_000), ("gb300-nvl72", 140_000), ("gb300-nvl72-142kw", 142_000)]
)
def test_racks_have_the_published_figures_with_their_source(id_: str, watts: float) -> None:
    """The smallest was 120 kW for all of them."""
    system = find_system("profile", id_)
    assert (system.max_watts, system.gpus, system.feeds) == (watts, 72, 4)
    assert system.source
    assert machine(f"profile = '{id_}'\n").committed_watts == pytest.approx(watts)


def test_commands_that_set_limits_are_those_of_the_maker() -> None:
    assert limit_command(["NVIDIA H100 80GB HBM3"], 500, 3) == "nvidia-smi -i 3 -pl 500"
    assert limit_command(["AMD Instinct MI300X"], 600, 3) == "amd-smi set --gpu 3 --power-cap 600"
    both = "nvidia-smi -pl 500; amd-smi set --gpu all --power-cap 500"
    assert limit_command(["H100 SXM5 80GB", "Instinct MI325X"], 500) == both
    assert clock_command(["Instinct MI300X"]).startswith("amd-smi set --clk-limit")
    assert clock_command([]) == "nvidia-smi -lgc"
