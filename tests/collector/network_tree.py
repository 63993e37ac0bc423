"""Fake trees of /sys with network adapters, made from facts about real nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collector.host.ethtool import Statistics

COUNTERS = [
    "port_rcv_data",
    "port_xmit_data",
    "port_rcv_packets",
    "port_xmit_packets",
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_discards",
    "port_xmit_wait",
    "port_rcv_constraint_errors",
    "port_xmit_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
]
HARDWARE = [
    "packet_seq_err",
    "implied_nak_seq_err",
    "out_of_sequence",
    "duplicate_request",
    "local_ack_timeout_err",
    "req_transport_retries_exceeded",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_slow_restart",
    "out_of_buffer",
    "np_cnp_sent",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "np_ecn_marked_roce_packets",
    "lifespan",
]


@dataclass(slots=True)
class Tree:
    """A tree of /sys that adapters and GPUs are put into."""

    root: Path
    gpus: list[str] = field(default_factory=list)
    """PCI addresses."""
    counted: dict[str, dict[str, int]] = field(default_factory=dict)
    """Statistics of interfaces, as `ethtool -S` has them."""

    def statistics(self, interface: str) -> Statistics:
        """Return the statistics of an interface. Raises `OSError` where it has none."""
        if interface not in self.counted:
            raise OSError(95, "Operation not supported")
        found = self.counted[interface]
        return Statistics(tuple(found), tuple(found.values()))

    def gpu(self, pci: str, bridges: str) -> None:
        """Put a GPU below some bridges: `pci0000:15/0000:15:01.0`."""
        self._device(pci, bridges)
        self.gpus.append(pci)

    def adapter(
        self,
        name: str,
        pci: str,
        bridges: str,
        *,
        rate: str = "400 Gb/sec (4X NDR)",
        layer: str = "InfiniBand",
        state: str = "4: ACTIVE",
        phys: str = "5: LinkUp",
        board: str = "MT_0000000838",
        interface: str | None = None,
        counters: dict[str, str] | None = None,
    ) -> Path:
        """Put an adapter with one port; return the port's folder."""
        device = self._device(pci, bridges)
        folder = self.root / "sys/class/infiniband" / name
        port = folder / "ports/1"
        for part in ("counters", "hw_counters"):
            (port / part).mkdir(parents=True, exist_ok=True)
        (folder / "device").symlink_to(device)
        (device / "numa_node").write_text("0\n")
        facts = {"fw_ver": "28.39.1002", "board_id": board, "hca_type": "MT4129", "node_guid": "b83f:d203:00e4:5ab0"}
        for file, text in facts.items():
            (folder / file).write_text(f"{text}\n")
        if interface:
            (device / "net" / interface).mkdir(parents=True)
            (device / "net" / interface / "operstate").write_text("up\n")
        state_files = {"state": state, "phys_state": phys, "rate": rate, "link_layer": layer}
        known = {f"counters/{file}": "0" for file in COUNTERS}
        known |= {f"hw_counters/{file}": "0" for file in HARDWARE}
        for file, text in {**known, **state_files, **(counters or {})}.items():
            (port / file).write_text(f"{text}\n")
        return port

    def interface(self, name: str, pci: str, bridges: str, *, speed: int = 100_000, state: str = "up") -> Path:
        """Put a port of plain Ethernet; return the folder of its interface."""
        device = self._device(pci, bridges)
        folder = device / "net" / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(device)
        (device / "vendor").write_text("0x8086\n")
        (device / "device").write_text("0x1592\n")
        self._fill(folder, speed, state)
        link = self.root / "sys/class/net" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
        return folder

    def bond(self, name: str, members: Sequence[Path], *, speed: int = 200_000) -> Path:
        """Put a bond of interfaces."""
        folder = self.root / "sys/class/net" / name
        (folder / "bonding").mkdir(parents=True)
        self._fill(folder, speed, "up")
        for member in members:
            (member / "master").symlink_to(folder)
        return folder

    @staticmethod
    def _fill(folder: Path, speed: int, state: str) -> None:
        (folder / "statistics").mkdir()
        files = {"type": 1, "operstate": state, "speed": speed, "carrier_down_count": 0, "statistics/rx_bytes": 0,
                 "statistics/tx_bytes": 0, "statistics/rx_packets": 0, "statistics/tx_packets": 0,
                 "statistics/rx_crc_errors": 0, "statistics/rx_missed_errors": 0}  # fmt: skip
        for file, value in files.items():
            (folder / file).write_text(f"{value}\n")

    def route(self, interface: str) -> None:
        """Put a default route, and one of a network."""
        path = self.root / "proc/net/route"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
            f"{interface}\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
            "ib0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n"
        )

    def slot(self, pci: str, *, now: int = 16, most: int = 16, slot: int = 16) -> Path:
        """Say how wide the PCI Express link of a device is, and could be there."""
        device = (self.root / "sys/bus/pci/devices" / pci).resolve()
        for folder, current, width in ((device, now, most), (device.parent, slot, slot)):
            for file, text in (
                ("current_link_width", current),
                ("max_link_width", width),
                ("current_link_speed", "32.0 GT/s PCIe"),
                ("max_link_speed", "32.0 GT/s PCIe"),
            ):
                (folder / file).write_text(f"{text}\n")
        return device

    def _device(self, pci: str, bridges: str) -> Path:
        device = self.root / "sys/devices" / bridges / pci
        device.mkdir(parents=True, exist_ok=True)
        link = self.root / "sys/bus/pci/devices" / pci
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(device)
        return device


def dgx_h100(root: Path) -> Tree:
    """Eight GPUs with an InfiniBand port of 400 Gb/s each, and a bond of two Ethernet ports."""
    tree = Tree(root)
    for number in range(8):
        bus = 0x15 + 0x10 * number
        switch = f"pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{bus + 1:02x}:00.0"
        tree.gpu(f"0000:{bus + 3:02x}:00.0", f"{switch}/0000:{bus + 2:02x}:00.0")
        tree.adapter(
            f"mlx5_{number}",
            f"0000:{bus + 4:02x}:00.0",
            f"{switch}/0000:{bus + 2:02x}:01.0",
            interface=f"ibp{bus + 4}s0",
        )
    tree.adapter(
        "mlx5_bond_0",
        "0000:9f:00.0",
        "pci0000:9d/0000:9d:01.0",
        rate="200 Gb/sec (2X NDR)",
        layer="Ethernet",
        board="MT_0000000834",
        interface="bond0",
    )
    return tree


def hgx_roce(root: Path) -> Tree:
    """Eight GPUs with a RoCE port each; every port has an unused neighbour that was never cabled."""
    tree = Tree(root)
    for number in range(8):
        bus = 0x15 + 0x10 * number
        switch = f"pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{bus + 1:02x}:00.0"
        tree.gpu(f"0000:{bus + 3:02x}:00.0", f"{switch}/0000:{bus + 2:02x}:00.0")
        for function, up in ((0, True), (1, False)):
            tree.adapter(
                f"mlx5_{2 * number + function}",
                f"0000:{bus + 4:02x}:00.{function}",
                f"{switch}/0000:{bus + 2:02x}:01.0",
                layer="Ethernet",
                board="MT_0000000892",
                rate="200 Gb/sec (4X HDR)" if up else "10 Gb/sec (4X SDR)",
                state="4: ACTIVE" if up else "1: DOWN",
                phys="5: LinkUp" if up else "3: Disabled",
                interface=f"ens{bus + 4}f{function}np{function}",
            )
    return tree


def storage_node(root: Path) -> Tree:
    """No GPU; two InfiniBand ports, and virtual functions that belong to guests."""
    tree = Tree(root)
    for number in range(2):
        tree.adapter(
            f"mlx5_{number}",
            f"0000:3{number}:00.0",
            f"pci0000:3{number}/0000:3{number}:01.0",
            rate="200 Gb/sec (4X HDR)",
        )
    guest = tree.adapter("mlx5_2", "0000:30:00.2", "pci0000:30/0000:30:01.0")
    (guest.parents[1] / "device").resolve().joinpath("physfn").mkdir()
    return tree
