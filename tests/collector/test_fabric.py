"""Ports of network adapters: from fake trees of real kinds of nodes, and from firmware that hangs."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from collector.host.fabric import LATEST, Fabric
from telemetry.devices import Gpu, Port
from telemetry.gap import Gap, reason_of
from telemetry.wire.schema import PORT_SLOW, SCHEMA
from tests.collector.network_tree import Tree, dgx_h100, hgx_roce, storage_node

NAMES = SCHEMA.blocks[PORT_SLOW].names
PATIENT = 60.0
"""Seconds that a test waits for a thread on a busy machine."""


class Rounds:
    """A reader whose clock the test can set forward. Its files stay open until the test ends."""

    living: ClassVar[list[Rounds]] = []

    def __init__(self, tree: Tree, wait: float = PATIENT) -> None:
        self.now = 0.0
        self._started = time.monotonic()
        self.gpus = [Gpu(uuid=f"GPU-{n}", index=n, name="H100", pci=p) for n, p in enumerate(tree.gpus)]
        self.fabric = Fabric("dgx-01", tree.root, monotonic=self._clock, wait=wait)
        self.living.append(self)

    def _clock(self) -> float:
        return self.now + time.monotonic() - self._started

    async def read(self) -> dict[str, dict[str, float]]:
        """The readings of a round, by port, without `port_` in the names."""
        self.fabric.begin(self.gpus)
        found = await self.fabric.finish()
        ports = self.fabric.ports
        assert set(found) == ({PORT_SLOW} if ports else set())
        return {
            port.name: dict(zip([name.removeprefix("port_") for name in NAMES], row, strict=True))
            for port, row in zip(ports, found.get(PORT_SLOW, []), strict=True)
        }


@pytest.fixture(autouse=True)
def closed_rounds() -> Iterator[None]:
    """End the rounds of each test, with hundreds of files."""
    yield
    while Rounds.living:
        Rounds.living.pop().fabric.close()


def by_name(rounds: Rounds) -> dict[str, Port]:
    return {port.name: port for port in rounds.fabric.ports}


async def test_a_dgx_has_eight_ports_beside_its_gpus_and_a_bond(tmp_path: Path) -> None:
    rounds = Rounds(dgx_h100(tmp_path))
    found = await rounds.read()
    assert list(found) == [*(f"mlx5_{number}/1" for number in range(8)), "mlx5_bond_0/1"]
    assert [port.gpu for port in rounds.fabric.ports] == [*(f"GPU-{n}" for n in range(8)), None]
    port = by_name(rounds)["mlx5_1/1"]
    assert port.id == "port:dgx-01:0000:29:00.0/1"
    assert (port.model, port.firmware, port.numa_node) == ("MT4129 MT_0000000838", "28.39.1002", 0)
    assert (port.link_layer, port.interface, port.present) == ("InfiniBand", "ibp41s0", True)
    first, bond = found["mlx5_0/1"], found["mlx5_bond_0/1"]
    assert (first["state"], first["physical_state"], first["width"]) == (4, 5, 4)
    assert first["speed_bytes_per_second"] == first["speed_usual_bytes_per_second"] == 50e9
    assert (bond["speed_bytes_per_second"], bond["width"]) == (25e9, 2)
    assert reason_of(bond["speed_usual_bytes_per_second"]) is Gap.NOT_SUPPORTED  # it has no like


async def test_counters_are_in_base_units_and_each_in_its_column(tmp_path: Path) -> None:
    tree = dgx_h100(tmp_path)
    port = tmp_path / "sys/class/infiniband/mlx5_3/ports/1"
    for number, file in enumerate(sorted((port / "counters").iterdir()), 3):
        file.write_text(f"{number}\n")
    (port / "hw_counters/np_cnp_sent").write_text("77\n")
    found = (await Rounds(tree).read())["mlx5_3/1"]
    counters = sorted(file.name for file in (port / "counters").iterdir())
    assert found["receive_bytes_total"] == 4 * (3 + counters.index("port_rcv_data"))
    assert found["transmit_bytes_total"] == 4 * (3 + counters.index("port_xmit_data"))
    assert found["link_downs_total"] == 3 + counters.index("link_downed")
    assert found["symbol_errors_total"] == 3 + counters.index("symbol_error")
    assert found["congestion_sent_total"] == 77
    absent = {name for name, value in found.items() if reason_of(value) is not None}
    assert absent == {
        *(f"pcie_link_{word}" for word in ("width", "generation")),
        *(f"pcie_link_{word}_possible" for word in ("width", "generation")),
        *(f"pcie_{word}_errors_total" for word in ("correctable", "uncorrectable")),
        "temperature_celsius", "module_temperature_celsius", "raw_ber", "rail_ratio",
        "receive_discards_total", "corrected_errors_total", "pause_seconds_total",
        "receive_pause_frames_total", "transmit_pause_frames_total",
    }  # fmt: skip


async def test_unused_ports_have_a_state_and_no_speed(tmp_path: Path) -> None:
    rounds = Rounds(hgx_roce(tmp_path))
    found = await rounds.read()
    assert len(found) == 16
    assert {port.gpu for port in rounds.fabric.ports} == {f"GPU-{number}" for number in range(8)}
    unused = found["mlx5_1/1"]
    assert (unused["state"], unused["physical_state"]) == (1, 3)
    assert reason_of(unused["speed_bytes_per_second"]) is Gap.NOT_READ
    assert reason_of(unused["speed_usual_bytes_per_second"]) is Gap.NOT_READ
    assert found["mlx5_0/1"]["speed_usual_bytes_per_second"] == 25e9


async def test_a_storage_node_has_its_ports_and_none_of_its_guests(tmp_path: Path) -> None:
    rounds = Rounds(storage_node(tmp_path))
    assert list(await rounds.read()) == ["mlx5_0/1", "mlx5_1/1"]
    assert [port.gpu for port in rounds.fabric.ports] == [None, None]


async def test_a_desktop_has_none_and_starts_no_thread(tmp_path: Path) -> None:
    rounds = Rounds(Tree(tmp_path))
    before = threading.active_count()
    assert await rounds.read() == {}
    assert threading.active_count() == before


async def test_one_port_at_half_speed_stands_out(tmp_path: Path) -> None:
    tree = dgx_h100(tmp_path)
    port = tmp_path / "sys/class/infiniband/mlx5_5/ports/1"
    (port / "rate").write_text("200 Gb/sec (2X NDR)\n")
    found = (await Rounds(tree).read())["mlx5_5/1"]
    assert (found["speed_bytes_per_second"], found["width"]) == (25e9, 2)
    assert found["speed_usual_bytes_per_second"] == 50e9


@pytest.mark.parametrize(
    ("file", "text", "metric", "gap"),
    [
        ("counters/link_downed", "255", "link_downs_total", Gap.SATURATED),
        ("counters/port_xmit_discards", "65535", "transmit_discards_total", Gap.SATURATED),
        ("counters/port_xmit_wait", "4294967295", "transmit_waits_total", Gap.SATURATED),
        ("counters/local_link_integrity_errors", "15", "integrity_errors_total", Gap.SATURATED),
        ("counters/link_downed", "254", "link_downs_total", None),
        ("counters/port_rcv_data", "4294967295", "receive_bytes_total", None),
        ("counters/symbol_error", "N/A (no PMA)", "symbol_errors_total", Gap.NOT_SUPPORTED),
        ("counters/symbol_error", "", "symbol_errors_total", Gap.ERROR),
        ("counters/symbol_error", None, "symbol_errors_total", Gap.NOT_SUPPORTED),
        ("hw_counters/np_cnp_sent", None, "congestion_sent_total", Gap.NOT_SUPPORTED),
        ("state", "nonsense", "state", Gap.ERROR),
        ("state", None, "state", Gap.NOT_SUPPORTED),
        ("rate", "fast", "speed_bytes_per_second", Gap.ERROR),
    ],
)
async def test_what_is_no_number_is_a_gap_of_this_reading_alone(
    tmp_path: Path, file: str, text: str | None, metric: str, gap: Gap | None
) -> None:
    """A counter that is full counts no more: its number would hide all that comes."""
    tree = dgx_h100(tmp_path)
    path = tmp_path / "sys/class/infiniband/mlx5_0/ports/1" / file
    path.unlink() if text is None else path.write_text(f"{text}\n")
    found = await Rounds(tree).read()
    assert reason_of(found["mlx5_0/1"][metric]) is gap
    assert reason_of(found["mlx5_0/1"]["remote_errors_total"]) is None
    assert reason_of(found["mlx5_1/1"][metric]) is None


async def test_other_vendors_count_bytes_elsewhere(tmp_path: Path) -> None:
    tree = storage_node(tmp_path)
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    for file in (port / "counters").iterdir():
        file.unlink()
    (port / "hw_counters/rx_bytes").write_text("123456\n")
    (port / "hw_counters/tx_rdma_ucast_bytes").write_text("99\n")
    found = (await Rounds(tree).read())["mlx5_0/1"]
    assert (found["receive_bytes_total"], found["transmit_bytes_total"]) == (123456, 99)


async def test_an_ethernet_port_is_as_up_as_its_interface(tmp_path: Path) -> None:
    """Some drivers say active whatever the cable does."""
    rounds = Rounds(hgx_roce(tmp_path))
    assert (await rounds.read())["mlx5_0/1"]["state"] == 4
    device = (tmp_path / "sys/class/infiniband/mlx5_0/device").resolve()
    next((device / "net").iterdir()).joinpath("operstate").write_text("down\n")
    found = (await rounds.read())["mlx5_0/1"]
    assert found["state"] == 1
    assert reason_of(found["speed_bytes_per_second"]) is Gap.NOT_READ


async def test_an_adapter_that_refuses_is_asked_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that the fabric manager owns: each refused reading is a line in the kernel's log."""
    asked: list[str] = []
    real = os.open

    def refusing(path: str, *args: int) -> int:
        if "mlx5_0/ports/1/" in str(path) and "counters/" in str(path):
            asked.append(str(path))
            raise OSError(22, "Invalid argument")
        return real(path, *args)

    monkeypatch.setattr("collector.host.fabric.os.open", refusing)
    rounds = Rounds(dgx_h100(tmp_path))
    for _ in range(3):
        found = await rounds.read()
    assert len(asked) == 2
    assert found["mlx5_0/1"]["state"] == 4
    assert reason_of(found["mlx5_0/1"]["link_downs_total"]) is Gap.ERROR
    assert reason_of(found["mlx5_1/1"]["link_downs_total"]) is None


async def test_an_adapter_that_hangs_is_left_alone_and_the_others_go_on(tmp_path: Path) -> None:
    """Dead firmware: opening the file does not return. A pipe without a writer does the same."""
    rounds = Rounds(dgx_h100(tmp_path))
    assert len(await rounds.read()) == 9
    state = tmp_path / "sys/class/infiniband/mlx5_2/ports/1/state"
    state.unlink()
    os.mkfifo(state)
    rounds.fabric._adapters["mlx5_2"].files.close()
    rounds.fabric._wait = 0.5
    assert len(await rounds.read()) == 9  # as they were
    (tmp_path / "sys/class/infiniband/mlx5_7/ports/1/counters/link_downed").write_text("9\n")
    rounds.now = LATEST + 1
    await until(rounds, lambda found: found["mlx5_7/1"]["link_downs_total"] == 9)
    found = await rounds.read()
    assert reason_of(found["mlx5_2/1"]["state"]) is Gap.TIMED_OUT
    assert found["mlx5_1/1"]["state"] == found["mlx5_3/1"]["state"] == 4
    before = threading.active_count()
    for _ in range(5):
        await rounds.read()
    assert threading.active_count() <= before + 1  # the last one may be about to end
    state.write_text("4: ACTIVE\n")  # wakes the thread; the file is a pipe still
    state.unlink()
    state.write_text("4: ACTIVE\n")
    await until(rounds, lambda found: found["mlx5_2/1"]["state"] == 4)
    rounds.fabric.close()


async def test_an_adapter_whose_files_stay_open_is_described_anew_when_it_was_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that is loaded again between two rounds leaves files behind that answer ENODEV."""
    rounds = Rounds(dgx_h100(tmp_path))
    await rounds.read()
    opened = rounds.fabric._adapters["mlx5_0"].files._open
    old = set(opened.values())
    assert len(old) > 20
    real = os.pread

    def gone(fd: int, size: int, at: int) -> bytes:
        if fd in old:
            raise OSError(errno.ENODEV, "No such device")
        return real(fd, size, at)

    monkeypatch.setattr("collector.host.open_file.os.pread", gone)
    (tmp_path / "sys/class/infiniband/mlx5_0/fw_ver").write_text("28.43.2026\n")
    found = await rounds.read()
    assert reason_of(found["mlx5_0/1"]["state"]) is Gap.ERROR
    assert not opened
    old.clear()
    found = await rounds.read()
    assert found["mlx5_0/1"]["state"] == 4
    assert rounds.fabric.ports[0].firmware == "28.43.2026"
    rounds.fabric.close()


async def test_an_adapter_that_is_gone_keeps_its_row(tmp_path: Path) -> None:
    rounds = Rounds(dgx_h100(tmp_path))
    assert len(await rounds.read()) == 9
    folder = tmp_path / "sys/class/infiniband"
    (folder / "mlx5_4").rename(tmp_path / "away")
    found = await rounds.read()
    assert found["mlx5_4/1"].pop("role") == 1  # what it was for is known
    assert {reason_of(value) for value in found["mlx5_4/1"].values()} == {Gap.DEVICE_LOST}
    assert [port.present for port in rounds.fabric.ports].count(False) == 1
    (tmp_path / "away").rename(folder / "mlx5_4")
    found = await rounds.read()
    assert found["mlx5_4/1"]["state"] == 4
    assert all(port.present for port in rounds.fabric.ports)


async def until(rounds: Rounds, reached: Callable[[dict[str, dict[str, float]]], bool]) -> None:
    """Read until a condition holds; the time limit is that of the test."""
    while not reached(await rounds.read()):
        pass
