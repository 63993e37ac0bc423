"""Expected state of nodes, as the settings declare it: `[[expected]]`. Pure.

The first entry that matches a node is its declaration. A fact that the node does not say is not known, and no
deviation from what is declared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import NamedTuple

import msgspec

from aggregator.register.facts import FIRMWARE, SERVICE, counted_text, memory_of, of_each, size_text, switch_text
from present.units import gigabits
from telemetry.devices import Port
from telemetry.errors import ConfigError
from telemetry.notations.kernel_args import is_reported
from telemetry.wire.inventory import (
    ARGUMENTS_FACT,
    DRIVES_FACT,
    MOUNT_FACT,
    MOUNTS_FACT,
    SERVICE_FACT,
    Inventory,
    NodeRole,
    role_of,
)

ANY = "any"
"""Word in place of a value that is not compared, neither with this nor with other nodes."""
MOST_ENTRIES = 200
SPEED_SHARE = 0.02
"""Part by which the speed of a port may differ: 400 Gb/s are 400 or 402.8."""

Texts = str | tuple[str, ...]
"""A pattern with `*` and `?`, or several of which one must fit."""


def pattern_covers(wide: str, narrow: str) -> bool:
    """Return whether a pattern fits all that another fits; False where that takes more than its `*` to say."""
    if wide == narrow:
        return True
    any_one = re.sub(r"\[!?.[^]]*\]", "?", narrow)  # what a `*` alone may stand for
    return "?" not in wide and "[" not in wide and fnmatchcase(any_one, wide)


class NodeMatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which nodes an entry is for: all that is written must fit."""

    role: NodeRole | None = None
    """Role of the node, as docs/roles.md has it."""
    node: str = ""
    """Pattern of names: `dgx-*`."""
    product: str = ""
    """Pattern of the product's name: `DGXH100*`."""
    label: dict[str, str] = {}
    """Patterns by label: those of `collector.labels`, and `rack`."""

    def fits(self, inventory: Inventory, labels: Mapping[str, str]) -> bool:
        """Return whether a node is meant. What it does not say fits no pattern but `*`."""
        return (
            (self.role is None or role_of(inventory) is self.role)
            and fnmatchcase(inventory.node, self.node or "*")
            and fnmatchcase(inventory.host.get("product", ""), self.product or "*")
            and all(fnmatchcase(labels.get(name, ""), text) for name, text in self.label.items())
        )

    def covers(self, other: NodeMatch) -> bool:
        """Return whether every node that another match is for is meant; False where the patterns don't show it."""
        return (
            self.role in {None, other.role}
            and pattern_covers(self.node or "*", other.node or "*")
            and pattern_covers(self.product or "*", other.product or "*")
            and all(pattern_covers(text, other.label.get(name, "*")) for name, text in self.label.items())
        )

    @property
    def everyone(self) -> bool:
        """Whether all nodes are meant."""
        return self == NodeMatch()

    def __str__(self) -> str:
        words = [] if self.role is None else [f"role {self.role}"]
        words += [f"{name} {text}" for name, text in (("node", self.node), ("product", self.product)) if text]
        words += [f"{name} {text}" for name, text in self.label.items()]
        return ", ".join(words) or "all nodes"


class ExpectedPorts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ports of one sort. Others may be there too."""

    count: int
    """Ports at least."""
    layer: str = ""
    """`InfiniBand` or `Ethernet`."""
    model: str = ""
    """Pattern of the adapter's type and board: `MT4129*`."""
    speed: str = ""
    """`400 Gb/s`; of a port that is down it is not known."""

    def fits(self, port: Port) -> bool:
        """Return whether a port is of this sort."""
        return (not self.layer or port.link_layer.casefold() == self.layer.casefold()) and (
            fnmatchcase(port.model or "", self.model or "*")
        )

    @property
    def name(self) -> str:
        """The sort in words: `InfiniBand MT4129*`."""
        return " ".join(filter(None, (self.layer, self.model)))


class ExpectedState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Expected state of some nodes. What is absent is compared with nodes of the kind."""

    match: NodeMatch = NodeMatch()
    gpus: int | None = None
    """GPUs on the bus."""
    gpu_model: Texts = ()
    """Words of the name, `H100 80GB`, or a pattern of all of it."""
    nvlinks: int | None = None
    """NVLinks of each GPU."""
    ports: tuple[ExpectedPorts, ...] = ()
    memory: str = ""
    """`2 TiB +-3%`; without a part that it may differ by, 1 %."""
    cpus: int | None = None
    """Logical CPUs."""
    nvme: int | None = None
    """Local NVMe drives at least."""
    mounts: tuple[str, ...] = ()
    """Paths on which a file system must be mounted."""
    services: tuple[str, ...] = ()
    """Systemd services that must run, without `.service`."""
    driver: Texts = ()
    """A pattern, or a list of them: `["580.126.*"]`; `any` is not compared at all."""
    vbios: Texts = ()
    """Pattern, or several, of each GPU's VBIOS."""
    nic_firmware: dict[str, Texts] = {}
    """Patterns by the pattern of a model: `{ "MT4129*" = ["28.43.*"] }`."""
    bios: Texts = ()
    """Pattern, or several, of the machine's BIOS."""
    kernel: Texts = ()
    """Pattern, or several, of the kernel's release."""
    kernel_args: tuple[str, ...] = ()
    """Arguments that the kernel must have been started with: `iommu=pt`."""
    pcie_width: int | None = None
    """PCI Express lanes of each GPU."""
    ecc: bool | None = None
    """Whether ECC is on, of each GPU."""
    mig: bool | None = None
    """Whether MIG is on, of each GPU."""
    persistence: bool | None = None
    """Whether persistence mode is on, of each GPU."""

    @cached_property
    def memory_range(self) -> tuple[float, float] | None:
        """Bytes at least and at most."""
        return parse_size(self.memory) if self.memory else None

    @cached_property
    def speeds(self) -> tuple[float | None, ...]:
        """Bytes a second of each sort of ports."""
        return tuple(parse_speed(each.speed) if each.speed else None for each in self.ports)

    def check(self, where: str) -> None:
        """Raise `ConfigError` for an entry that can't work, with what to write instead."""
        for name, least in (("gpus", 0), ("nvlinks", 0), ("cpus", 1), ("nvme", 0), ("pcie_width", 1)):
            value = getattr(self, name)
            if value is not None and not least <= value <= 65_535:
                raise ConfigError(f"{where}.{name}", f"{value} is out of range", f"Write {least} to 65535.")
        for number, ports in enumerate(self.ports):
            if not 0 <= ports.count <= 1024:
                raise ConfigError(
                    f"{where}.ports[{number}].count", f"{ports.count} is out of range", "Write 0 to 1024."
                )
        if self.memory and self.memory_range is None:
            raise ConfigError(f"{where}.memory", f"{self.memory!r} is no size", "Write 2 TiB +-3%, or 512 GiB.")
        for number, speed in enumerate(self.speeds):
            if self.ports[number].speed and speed is None:
                raise ConfigError(
                    f"{where}.ports[{number}].speed", f"{self.ports[number].speed!r} is no speed", "Write 400 Gb/s."
                )
        for name in ("mounts", "services", "kernel_args"):
            if any(not text.strip() for text in getattr(self, name)):
                raise ConfigError(f"{where}.{name}", "one of them is empty")
        for argument in self.kernel_args:
            if not is_reported(argument):
                raise ConfigError(
                    f"{where}.kernel_args",
                    f"nodes do not report {argument!r}",
                    "Only arguments that nodes of a kind share are reported (telemetry/notations/kernel_args.py).",
                )
        for path in self.mounts:
            if not path.startswith("/"):
                raise ConfigError(f"{where}.mounts", f"{path!r} is no path", "Write /scratch.")
        for name in self.services:
            if name.endswith(".service"):
                raise ConfigError(
                    f"{where}.services", f"{name!r} has its suffix", f"Write {name.removesuffix('.service')}."
                )
        if self == ExpectedState(match=self.match):
            raise ConfigError(
                where, "it declares nothing", "Write what these nodes should have, as gpus = 8, or remove it."
            )

    def covers(self, fact: str) -> bool:
        """Return whether a fact is declared here, so that what other nodes have counts for nothing."""
        if fact.startswith(SERVICE):
            return fact.removeprefix(SERVICE) in self.services
        if fact.startswith(FIRMWARE):
            return any(fnmatchcase(fact.removeprefix(FIRMWARE), model) for model in self.nic_firmware)
        declared = getattr(self, _FIELDS[fact], None) if fact in _FIELDS else None
        return declared is not None and declared not in ((), "")


_FIELDS = {
    "gpus": "gpus", "gpu model": "gpu_model", "nvlinks": "nvlinks", "ports": "ports", "memory": "memory", "cpus": "cpus",
    "nvme drives": "nvme", "driver": "driver", "gpu vbios": "vbios", "bios": "bios", "kernel": "kernel",
    "kernel args": "kernel_args", "gpu pcie width": "pcie_width", "gpu ecc": "ecc", "gpu mig": "mig",
    "gpu persistence": "persistence",
}  # fmt: skip
"""Keys of an entry by the fact."""


class Shortfall(NamedTuple):
    """A fact that is another one than what is declared."""

    fact: str
    has: str
    wanted: str


def check_expected(entries: Sequence[ExpectedState]) -> None:
    """Raise `ConfigError` for entries that can't work, and for one that no node can reach."""
    if len(entries) > MOST_ENTRIES:
        raise ConfigError(
            "expected", f"there are {len(entries)} entries", f"Write {MOST_ENTRIES} at most, by patterns."
        )
    for number, entry in enumerate(entries):
        where = f"expected[{number}]"
        entry.check(where)
        before = entries[:number]
        if any(each.match.everyone for each in before) or entry.match in [each.match for each in before]:
            raise ConfigError(
                where,
                f"an entry above is for all of these ({entry.match})",
                "The first that matches counts: move the narrower one up.",
            )


def expected_of(
    inventory: Inventory, labels: Mapping[str, str], entries: Iterable[ExpectedState]
) -> ExpectedState | None:
    """Return the first entry that is for a node; None where there is none."""
    return next((each for each in entries if each.match.fits(inventory, labels)), None)


def shortfalls(inventory: Inventory, wanted: ExpectedState, speeds: Mapping[str, float]) -> list[Shortfall]:
    """Return in what a node is not as declared. `speeds`: bytes a second by port, of those that are up."""
    return [*_of_gpus(inventory, wanted), *_of_ports(inventory, wanted, speeds), *_of_host(inventory, wanted)]


def _of_gpus(inventory: Inventory, wanted: ExpectedState) -> Iterator[Shortfall]:
    # Without its driver a node lists no GPUs, or those of before: that rings as what it is.
    known = bool(inventory.gpus) or inventory.driver_state in {"up", "none"}
    there = [gpu for gpu in inventory.gpus if gpu.present]
    if wanted.gpus is not None and known and len(there) != wanted.gpus:
        yield Shortfall("gpus", str(len(there)), str(wanted.gpus))
    if wanted.nvlinks is not None and there:
        counts = {gpu.uuid: 0 for gpu in there}
        for link in inventory.links:
            if link.gpu in counts:
                counts[link.gpu] += 1
        if any(count != wanted.nvlinks for count in counts.values()):
            yield Shortfall("nvlinks", of_each(map(str, counts.values())) or "", str(wanted.nvlinks))
    yield from _texts("gpu model", [gpu.name for gpu in there], wanted.gpu_model, loose=True)
    yield from _texts("gpu vbios", [gpu.vbios for gpu in there], wanted.vbios)
    yield from _texts("driver", [inventory.driver_version], wanted.driver)
    for fact, name in (
        ("gpu pcie width", "pcie_width"),
        ("gpu ecc", "ecc"),
        ("gpu mig", "mig"),
        ("gpu persistence", "persistence"),
    ):
        value = getattr(wanted, name)
        if value is not None:
            yield from _same(fact, [getattr(gpu, name) for gpu in there], value)


def _same(fact: str, values: Sequence[int | bool | None], wanted: int | bool) -> Iterator[Shortfall]:
    """Compare what each GPU has; what one does not say is not known."""
    known = [value for value in values if value is not None]
    if any(value != wanted for value in known):
        yield Shortfall(fact, of_each(_word(value) for value in known) or "", _word(wanted))


def _word(value: int | bool) -> str:
    return (switch_text(value) or "") if isinstance(value, bool) else str(value)


def _texts(fact: str, values: Sequence[str | None], wanted: Texts, *, loose: bool = False) -> Iterator[Shortfall]:
    """Compare texts with patterns. `loose`: a pattern without `*` may be a part of the text."""
    patterns = (wanted,) if isinstance(wanted, str) else wanted
    if not patterns or ANY in patterns:
        return
    known = [value for value in values if value]
    if any(not any(_fits(value, each, loose=loose) for each in patterns) for value in known):
        yield Shortfall(fact, of_each(known) or "", " or ".join(patterns))


def _fits(value: str, pattern: str, *, loose: bool) -> bool:
    value, pattern = value.casefold(), pattern.casefold()
    if fnmatchcase(value, pattern):
        return True
    return loose and "*" not in pattern and set(pattern.split()) <= set(re.split(r"[\s-]+", value))


def _of_ports(inventory: Inventory, wanted: ExpectedState, speeds: Mapping[str, float]) -> Iterator[Shortfall]:
    there = [port for port in inventory.ports if port.present]
    for sort, speed in zip(wanted.ports, wanted.speeds, strict=True):
        its = [port for port in there if sort.fits(port)]
        name = f"ports {sort.name}".strip()
        if len(its) < sort.count:
            yield Shortfall(name, str(len(its)), f"{sort.count} at least")
        if speed is None:
            continue
        slow = [port for port in its if port.id in speeds and abs(speeds[port.id] - speed) > SPEED_SHARE * speed]
        if slow:
            has = counted_text(gigabits(speeds[port.id]) for port in slow)
            yield Shortfall(f"{name} speed", f"{has} ({', '.join(port.name for port in slow[:8])})", sort.speed)
    for model, patterns in wanted.nic_firmware.items():
        firmware = [port.firmware for port in there if fnmatchcase(port.model or "", model)]
        yield from _texts(f"{FIRMWARE}{model}", firmware, patterns)


def _of_host(inventory: Inventory, wanted: ExpectedState) -> Iterator[Shortfall]:
    host = inventory.host
    size = memory_of(inventory)
    if wanted.memory_range is not None and size is not None:
        least, most = wanted.memory_range
        if not least <= size <= most:
            yield Shortfall("memory", size_text(size) or "", wanted.memory)
    if wanted.cpus is not None and "cpus" in host and host["cpus"] != str(wanted.cpus):
        yield Shortfall("cpus", host["cpus"], str(wanted.cpus))
    if wanted.nvme is not None and host.get(DRIVES_FACT, "").isdigit() and int(host[DRIVES_FACT]) < wanted.nvme:
        yield Shortfall("nvme drives", host[DRIVES_FACT], f"{wanted.nvme} at least")
    listed = sum(name.startswith(MOUNT_FACT) for name in host)
    complete = host.get(MOUNTS_FACT) == str(listed)  # a long list is cut
    for path in wanted.mounts:
        if complete and f"{MOUNT_FACT}{path}" not in host:
            yield Shortfall(f"mount {path}", "not mounted", "mounted")
    for name in wanted.services:
        state = host.get(f"{SERVICE_FACT}{name}")
        if state is not None and state != "running":
            yield Shortfall(f"{SERVICE}{name}", state, "running")
    yield from _texts("bios", [host.get("bios")], wanted.bios)
    yield from _texts("kernel", [host.get("kernel")], wanted.kernel)
    if ARGUMENTS_FACT in host:
        missing = [each for each in wanted.kernel_args if each not in host[ARGUMENTS_FACT].split()]
        if missing:
            yield Shortfall("kernel args", f"without {' '.join(missing)}", " ".join(wanted.kernel_args))


_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(TiB|GiB|MiB|TB|GB)\s*(?:(?:\+-|±)\s*(\d+(?:\.\d+)?)\s*%)?\s*")
_BYTES = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "TB": 10**12, "GB": 10**9}
_SPEED = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(Gb|Gb/s|Gbit/s|Gb/sec|G)\s*")
USUAL_PERCENT = 1.0


def parse_size(text: str) -> tuple[float, float] | None:
    """Read `2 TiB +-3%`: bytes at least and at most; None for anything else."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    size, part = float(match[1]) * _BYTES[match[2]], float(match[3] or USUAL_PERCENT) / 100
    return (size * (1 - part), size * (1 + part)) if size and part < 1 else None


def parse_speed(text: str) -> float | None:
    """Read `400 Gb/s`: bytes a second; None for anything else."""
    match = _SPEED.fullmatch(text)
    return float(match[1]) * 1e9 / 8 if match and float(match[1]) else None
