"""What a port is for, what it is cabled to, and readings beside those of the adapter itself."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from collector.host.bit_errors import LEAST_SECONDS, BitErrors, limit
from collector.host.ethtool import EthtoolReader
from collector.host.fabric import Fabric
from collector.host.topology import FarEnd, far_end, read_topology
from telemetry.devices import Port
from telemetry.gap import NOT_SUPPORTED, Gap, reason_of
from tests.collector import node_trees
from tests.collector.network_tree import Tree, dgx_h100
from tests.collector.test_fabric import Rounds, by_name, closed_rounds  # noqa: F401 - a fixture
from tests.collector.test_host_hardware import shown

MLX = {"rx_prio0_pause": 5, "rx_prio3_pause": 7, "rx_prio3_pause_duration": 2_000_000, "rx_prio3_pause_transition": 99,
       "tx_prio3_pause": 3, "rx_discards_phy": 11, "rx_corrected_bits_phy": 0, "rx_pcs_symbol_err_phy": 13}  # fmt: skip


def rounds_of(tree: Tree, **more: object) -> Rounds:
    """A reader of a tree, with the statistics that stand in it."""
    rounds = Rounds(tree)
    rounds.fabric = Fabric("n1", tree.root, monotonic=rounds._clock, wait=60, statistics=tree.statistics, **more)  # type: ignore[arg-type]
    return rounds


async def test_ports_beside_gpus_are_compute_in_rails_and_the_default_route_is_management(tmp_path: Path) -> None:
    rounds = rounds_of(node_trees.dgx(tmp_path))
    found = await rounds.read()
    ports = by_name(rounds)
    assert [ports[f"mlx5_{n}/1"].rail for n in range(8)] == list(range(8))
    assert {ports[f"mlx5_{n}/1"].role for n in range(8)} == {"compute"}
    assert (ports["mlx5_bond_0/1"].role, ports["eno1"].role) == ("storage", "management")
    assert ports["eno1"].rail is None
    assert (found["mlx5_3/1"]["role"], found["eno1"]["role"]) == (1, 3)


async def test_a_rail_follows_its_gpu_and_not_its_name(tmp_path: Path) -> None:
    """Drivers number adapters as they find them."""
    tree = dgx_h100(tmp_path)
    tree.gpus.reverse()
    rounds = rounds_of(tree)
    await rounds.read()
    assert [by_name(rounds)[f"mlx5_{n}/1"].rail for n in range(8)] == list(range(7, -1, -1))


async def test_members_of_a_bond_are_members_and_the_bond_has_a_row(tmp_path: Path) -> None:
    rounds = rounds_of(node_trees.hgx(tmp_path))
    found = await rounds.read()
    ports = by_name(rounds)
    assert ports["ens7f0np0"].role == ports["ens7f1np1"].role == "member"
    assert (ports["ens7f0np0"].bond, ports["bond0"].role) == ("bond0", "management")
    assert found["bond0"]["speed_bytes_per_second"] == 25e9
    assert found["ens7f0np0"]["speed_bytes_per_second"] == 12.5e9
    members = tmp_path / "sys/class/net/ens7f0np0"
    (members / "operstate").write_text("down\n")
    (members / "carrier_down_count").write_text("1\n")
    found = await rounds.read()
    assert (found["ens7f0np0"]["state"], found["bond0"]["state"]) == (1, 4)
    assert found["ens7f0np0"]["link_downs_total"] == 1


async def test_the_operator_says_what_a_port_is_for(tmp_path: Path) -> None:
    rounds = rounds_of(node_trees.dgx(tmp_path), roles={"mlx5_[67]": "storage", "eno*": "compute"})
    await rounds.read()
    ports = by_name(rounds)
    assert [ports[name].role for name in ("mlx5_5/1", "mlx5_6/1", "eno1")] == ["compute", "storage", "compute"]
    assert ports["eno1"].rail == 6  # behind those that have a GPU


async def test_a_storage_node_has_ports_of_storage_and_a_cable_of_no_use_is_unknown(tmp_path: Path) -> None:
    tree = node_trees.storage(tmp_path)
    tree.interface("eno2", "0000:0c:00.0", "pci0000:00/0000:00:1d.0", state="down")
    rounds = rounds_of(tree)
    found = await rounds.read()
    assert [found[name]["role"] for name in ("mlx5_0/1", "mlx5_1/1", "eno2")] == [2, 2, 0]
    assert (found["eno2"]["state"], reason_of(found["eno2"]["speed_bytes_per_second"])) == (1, Gap.NOT_READ)


async def test_containers_usb_and_guests_have_no_ports_here(tmp_path: Path) -> None:
    tree = node_trees.head(tmp_path)
    for number in range(200):  # those of containers
        (tmp_path / f"sys/class/net/veth{number}").mkdir()
    guest = tree.interface("ens3v0", "0000:00:04.1", "pci0000:00")
    (guest.parents[1] / "physfn").mkdir()
    tree.interface("usb0", "0000:00:14.0", "pci0000:00/0000:00:13.0/usb1/1-1")
    assert list(await rounds_of(tree).read()) == ["ens3"]


async def test_an_interface_that_is_renamed_or_gets_an_rdma_driver_is_not_gone(tmp_path: Path) -> None:
    tree = node_trees.desktop(tmp_path)
    rounds = rounds_of(tree)
    assert list(await rounds.read()) == ["enp5s0"]
    net = tmp_path / "sys/class/net"
    (net / "enp5s0").rename(net / "lan0")
    assert list(await rounds.read()) == ["lan0"]
    tree.adapter("mlx5_0", "0000:05:00.0", "pci0000:00/0000:00:02.5", layer="Ethernet", interface="lan0")
    assert list(await rounds.read()) == ["mlx5_0/1"]
    (net / "lan0").unlink()
    assert all(port.present for port in rounds.fabric.ports)


async def test_statistics_are_added_by_priority_and_a_pause_is_not_its_duration(tmp_path: Path) -> None:
    tree = node_trees.hgx(tmp_path)
    tree.counted["ens25f0np0"] = dict(MLX)
    found = (await rounds_of(tree).read())["mlx5_0/1"]
    assert (found["receive_pause_frames_total"], found["transmit_pause_frames_total"]) == (12, 3)
    assert (found["pause_seconds_total"], found["receive_discards_total"]) == (2, 11)
    assert found["symbol_errors_total"] == 13
    other = (await rounds_of(tree).read())["mlx5_2/1"]
    assert reason_of(other["pause_seconds_total"]) is Gap.NOT_SUPPORTED
    assert other["symbol_errors_total"] == 0  # from the adapter's own counter


async def test_statistics_that_are_refused_later_are_gaps_and_their_order_may_change(tmp_path: Path) -> None:
    tree = node_trees.hgx(tmp_path)
    tree.counted["ens25f0np0"] = dict(MLX)
    rounds = rounds_of(tree)
    await rounds.read()
    tree.counted["ens25f0np0"] = {"new": 1, **dict(reversed(MLX.items()))}
    assert (await rounds.read())["mlx5_0/1"]["receive_pause_frames_total"] == 12
    del tree.counted["ens25f0np0"]
    found = (await rounds.read())["mlx5_0/1"]
    assert reason_of(found["receive_pause_frames_total"]) is Gap.ERROR
    assert found["state"] == 4


@pytest.mark.parametrize(
    ("now", "most", "slot", "expected"),
    [(16, 16, 16, (16, 16)), (8, 16, 16, (8, 16)), (8, 16, 8, (8, 8)), (4, 8, 16, (4, 8))],
)
async def test_a_link_is_as_wide_as_both_adapter_and_slot_allow(
    tmp_path: Path, now: int, most: int, slot: int, expected: tuple[int, int]
) -> None:
    tree = node_trees.desktop(tmp_path)
    tree.slot("0000:05:00.0", now=now, most=most, slot=slot)
    found = (await rounds_of(tree).read())["enp5s0"]
    assert (found["pcie_link_width"], found["pcie_link_width_possible"]) == expected
    assert found["pcie_link_generation"] == found["pcie_link_generation_possible"] == 5


async def test_errors_of_pci_express_and_temperatures_are_of_the_adapter(tmp_path: Path) -> None:
    tree = node_trees.dgx(tmp_path)
    device = (tmp_path / "sys/bus/pci/devices/0000:19:00.0").resolve()
    node_trees.counts(device, correctable=4, nonfatal=2, fatal=1)
    node_trees.put(
        device / "hwmon/hwmon7",
        {"temp1_input": "61000\n", "temp1_label": "asic\n", "temp2_input": "72000\n", "temp2_label": "Module0\n"},
    )
    found = await rounds_of(tree).read()
    first = found["mlx5_0/1"]
    assert (first["pcie_correctable_errors_total"], first["pcie_uncorrectable_errors_total"]) == (4, 3)
    assert (first["temperature_celsius"], first["module_temperature_celsius"]) == (61, 72)
    assert reason_of(found["mlx5_1/1"]["temperature_celsius"]) is Gap.NOT_SUPPORTED


async def test_one_rail_that_sends_less_than_the_others_stands_out(tmp_path: Path) -> None:
    tree = dgx_h100(tmp_path)
    rounds = rounds_of(tree)
    await rounds.read()

    async def send(*gigabytes: float) -> list[float | str]:
        rounds.now += 15
        for number, more in enumerate(gigabytes):
            file = tmp_path / f"sys/class/infiniband/mlx5_{number}/ports/1/counters/port_xmit_data"
            file.write_text(f"{int(file.read_text()) + int(more * 1e9 / 4)}\n")
        rows = (await rounds.read()).values()
        return [shown(row["rail_ratio"]) for row in rows]

    assert await send(*[300] * 7, 100) == [
        *[pytest.approx(1, abs=0.05)] * 7,
        pytest.approx(0.33, abs=0.05),
        "not_supported",
    ]
    assert await send(*[0.1] * 8) == [*["not_read"] * 8, "not_supported"]  # idle
    half = await send(*[300] * 4, *[0] * 4)  # a job on half of the GPUs
    assert half[:8] == ["not_read"] * 8
    seven = await send(*[300] * 7, 0.001)  # one GPU without work
    assert seven[7] == "not_read"


async def test_a_file_of_links_names_the_switch_and_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "links"
    file.write_text("# port switch port\nmlx5_0 leaf-1 7\nother:mlx5_1 leaf-9 1\nn1:mlx5_1 leaf-2 3\n")
    rounds = rounds_of(dgx_h100(tmp_path / "tree"), topology=file)
    await rounds.read()
    ports = by_name(rounds)
    assert (ports["mlx5_0/1"].switch, ports["mlx5_0/1"].switch_port) == ("leaf-1", "7")
    assert (ports["mlx5_1/1"].switch, ports["mlx5_2/1"].switch) == ("leaf-2", None)
    file.write_text("mlx5_0 leaf-3\n")
    await rounds.read()
    assert by_name(rounds)["mlx5_0/1"].switch == "leaf-3"
    file.write_text("nonsense\n")
    await rounds.read()
    assert by_name(rounds)["mlx5_0/1"].switch == "leaf-3"  # what was known stays


LLDP = """{"lldp": {"interface": [
 {"eno1": {"via": "LLDP", "chassis": {"tor-4": {"id": {"type": "mac", "value": "00:11"}, "descr": "SONiC"}},
           "port": {"id": {"type": "ifname", "value": "Ethernet12"}, "descr": "to dgx"}}},
 {"eno2": {"chassis": {"id": {"type": "mac", "value": "00:22"}}, "port": {"id": {"value": "7"}}}}]}}"""
IBLINKINFO = (
    '0xb83fd20300e45ab0 "dgx-01 mlx5_0" 12 1[  ] ==( 4X 106.25 Gbps Active/ LinkUp)==> '
    '0xb83fd20300aaaa00 3 17[  ] "MF0;leaf-7:MQM9700/U1" ( )\n'
    '0xb83fd20300aaaa00 "MF0;leaf-7:MQM9700/U1" 3 18[  ] ==( 4X 106.25 Gbps Active/ LinkUp)==> '
    '0xb83fd20300e45ab1 13 1[  ] "dgx-01 mlx5_1" ( )\n'
    '0xb83fd20300aaaa00 "MF0;leaf-7:MQM9700/U1" 3 19[  ] ==( Down/ Polling)==> [  ] "" ( )\n'
)


@pytest.mark.parametrize(
    ("text", "port", "expected"),
    [
        (LLDP, Port(id="port:n:1", adapter="eno1", number=0), FarEnd("tor-4", "Ethernet12")),
        (LLDP, Port(id="port:n:1", adapter="eno2", number=0), FarEnd("00:22", "7")),
        (IBLINKINFO, Port(id="port:n:1", adapter="mlx5_0", number=1, guid="b83f:d203:00e4:5ab0"), FarEnd("leaf-7", "17")),
        (IBLINKINFO, Port(id="port:n:1", adapter="mlx5_1", number=1, guid="b83f:d203:00e4:5ab1"), FarEnd("leaf-7", "18")),
        ("0xb83fd20300e45ab0 leaf-1 4", Port(id="port:n:1", adapter="mlx5_0", number=1, guid="b83f:d203:00e4:5ab0"), FarEnd("leaf-1", "4")),
        (LLDP, Port(id="port:n:1", adapter="mlx5_0", number=1), None),
    ],
)  # fmt: skip
def test_each_form_of_the_file_of_links_is_read(text: str, port: Port, expected: FarEnd | None) -> None:
    assert far_end(port, "n", read_topology(text)) == expected


@pytest.mark.parametrize("text", ["{", '{"lldp": 3}', "one", "==>"])
def test_a_file_of_no_form_says_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        read_topology(text)


def test_bits_that_were_corrected_are_a_share_of_the_bits_of_the_link() -> None:
    errors = BitErrors()
    assert reason_of(errors.rate("p", 0, 50e9, 0)) is Gap.NOT_READ
    assert errors.rate("p", 400e9 * 10 * 1e-6, 50e9, 10) == pytest.approx(1e-6)
    assert errors.rate("p", 5e12, 50e9, 10 + LEAST_SECONDS / 2) == pytest.approx(1e-6)  # too soon
    assert reason_of(errors.rate("p", 3, 50e9, 30)) is Gap.NOT_READ  # a reset
    assert errors.rate("p", 3, 50e9, 40) == 0
    assert reason_of(errors.rate("p", NOT_SUPPORTED, 50e9, 50)) is Gap.NOT_SUPPORTED


@pytest.mark.parametrize(
    ("gigabits", "lanes", "expected"),
    [(400, 4, 1e-5), (800, 8, 1e-5), (200, 4, 1e-7), (200, 2, 1e-5), (100, 4, None), (100, None, None)],
)
def test_a_limit_is_that_of_the_rate_of_a_lane(gigabits: float, lanes: float | None, expected: float | None) -> None:
    found = limit(gigabits * 1e9 / 8, NOT_SUPPORTED if lanes is None else lanes)
    assert found == expected if expected is not None else reason_of(found) is Gap.NOT_SUPPORTED


def test_the_statistics_of_this_machine_are_those_that_the_kernel_has() -> None:
    """The call itself, on every interface that is here; some have none."""
    reader, seen = EthtoolReader(), 0
    for _, name in socket.if_nameindex():
        with contextlib.suppress(OSError):
            for _ in range(2):
                found = reader(name)
                assert len(found.names) == len(found.values) == len(set(found.names)) > 0
                assert all(each.isprintable() and each for each in found.names)
            seen += 1
    with pytest.raises(OSError, match=r"\S"):
        reader("lo")
    with pytest.raises(OSError, match=r"\S"):
        reader("no-such-0")
    assert seen < len(socket.if_nameindex())  # the loopback has none
