"""Every kind of file that an aggregator reads at its start, and every kind of damage to it.

The files are those of a real run in virtual time (`made`), a kind a name; a test damages one and starts an aggregator over the folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from aggregator.access import tokens
from aggregator.alerting.picture_key import signer_of
from aggregator.config import StoreConfig, StoreKind
from aggregator.homeassistant import publisher
from aggregator.settings.influx import InfluxConfig
from tests.brokers import free_port
from tests.faults.injection_scene import HONEST, Scene
from tests.kit.night import size

DAY = 86_400.0


@dataclass(frozen=True)
class DamagedKind:
    """Files that are damaged in the same ways."""

    file: str
    """Pattern of its path below the data folder."""
    said: str = "file_damaged"
    """The rule that says it."""
    quiet: str = ""
    """The damages that nothing says, as a regular expression."""
    why: str = ""
    """Why that is right."""
    killed: bool = False
    """Whether there is one only after a kill, before the next start."""
    influx: bool = False
    """Whether it is one of an aggregator with InfluxDB."""
    newer: Callable[[bytes], bytes] | None = None
    """Makes it one of a newer release."""
    stays: bool = False
    """Whether it stays in its place."""


def _newer_json(raw: bytes) -> bytes:
    tree = msgspec.json.decode(raw)
    tree = {**tree, "version": 99} if isinstance(tree, dict) and "version" in tree else {"version": 99, "content": tree}
    return msgspec.json.encode(tree)


def _newer_sqlite(raw: bytes) -> bytes:
    at = 60  # `user_version` in the header of the format
    return raw[:at] + (99).to_bytes(4, "big") + raw[at + 4 :]


def _newer_duckdb(raw: bytes) -> bytes:
    """Set the storage version, in the first block: a checksum, `DUCK`, the version."""
    head, checksum = raw[8:12] + (5000).to_bytes(8, "little") + raw[20:4096], 5381
    for (word,) in struct.iter_unpack("<Q", head):
        checksum ^= word * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    return checksum.to_bytes(8, "little") + head + raw[4096:]


KINDS = (
    DamagedKind("hot.duckdb", newer=_newer_duckdb),
    DamagedKind("hot.duckdb.wal", quiet="empty|cut.*|flipped.*|zeros", killed=True,
                why="A log that ends early is what every kill may leave: it is kept and logged, and frames are requested again."),
    DamagedKind("alerts.sqlite", newer=_newer_sqlite),
    DamagedKind("alerts.sqlite-wal", quiet="empty|cut.*|flipped.*", killed=True,
                why="SQLite can't tell a log that ends early from what a kill leaves."),
    DamagedKind("sealed/gpu_fast/*.parquet", said="files_lost", stays=True, quiet="zeros",
                why="A file of the same size is verified when it is read, or when its turn comes."),
    DamagedKind("sealed/gpu_fast/*.parquet.sha256", quiet=".*", stays=True,
                why="The footer of the file has the checksum too; this one is for people."),
    DamagedKind("rollup_10/gpu_fast/*.parquet", said="files_lost", stays=True, quiet="zeros",
                why="A file of the same size is verified when it is read, or when its turn comes."),
    DamagedKind("electrical.json", newer=_newer_json),
    DamagedKind("months/*.json", newer=_newer_json),
    DamagedKind("circuits/*.tape", quiet=".*", stays=True, why="It is read when somebody asks, and ends where it is damaged."),
    DamagedKind("running.json", newer=_newer_json),
    DamagedKind("unheld.json", newer=_newer_json),
    DamagedKind("nodes.json", newer=_newer_json),
    DamagedKind("drift.json", newer=_newer_json),
    DamagedKind("fitness.json", newer=_newer_json),
    DamagedKind("rule_memory.bin"),
    DamagedKind("homeassistant.json", newer=_newer_json),
    DamagedKind("picture.key", quiet=".*", stays=True, why="It is read where a channel shows pictures."),
    DamagedKind("tokens.json", newer=_newer_json, stays=True),
    DamagedKind("quarantine/*.bin", quiet=".*", stays=True, why="It is for people; the aggregator does not read it."),
    DamagedKind("lock", quiet="empty|cut.*|flipped.*|zeros", why="It is locked, not read."),
    DamagedKind("spool/*.spool", quiet="empty|cut.*|flipped.*|zeros", influx=True,
                why="The points of damaged records are counted, and recorded as holes."),
    DamagedKind("spool/taken", quiet="cut at [89]/10", influx=True, why="Without the end of its line it is whole."),
    DamagedKind("open-hours.npz", influx=True),
)  # fmt: skip


@dataclass(frozen=True)
class Damage:
    """What happens to a file."""

    name: str
    apply: Callable[[Path, DamagedKind], None]
    fits: Callable[[DamagedKind], bool] = lambda _: True


def _changed(change: Callable[[bytes], bytes]) -> Callable[[Path, DamagedKind], None]:
    def apply(path: Path, _: DamagedKind) -> None:
        path.write_bytes(change(path.read_bytes()))

    return apply


def _flipped(raw: bytes, tenth: int, length: int = 8) -> bytes:
    at = min(len(raw) * tenth // 10, max(0, len(raw) - 1))
    return raw[:at] + bytes(byte ^ 0x5A for byte in raw[at : at + length]) + raw[at + length :]


def _folder(path: Path, _: DamagedKind) -> None:
    path.unlink()
    path.mkdir()
    (path / "in the way").write_text("a folder in the place of a file")


def _unreadable(path: Path, _: DamagedKind) -> None:
    path.chmod(0)


def _newer(path: Path, kind: DamagedKind) -> None:
    assert kind.newer is not None
    path.write_bytes(kind.newer(path.read_bytes()))


DAMAGES = (
    Damage("empty", _changed(lambda _: b"")),
    *(
        Damage(f"cut at {n}/10", _changed(lambda raw, n=n: raw[: len(raw) * n // 10]))  # type: ignore[misc]
        for n in range(1, 10)
    ),
    *(
        Damage(f"flipped at {n}/10", _changed(lambda raw, n=n: _flipped(raw, n)))  # type: ignore[misc]
        for n in range(10)
    ),
    Damage("zeros", _changed(lambda raw: bytes(len(raw)))),
    Damage("folder", _folder),
    Damage("unreadable", _unreadable),
    Damage("newer", _newer, lambda kind: kind.newer is not None),
)
SORTS = tuple(
    one for one in DAMAGES if one.name in {"empty", "cut at 5/10", "flipped at 3/10", "zeros", "folder", "unreadable"}
)
"""One damage of each sort that fits any file."""


async def make(folder: Path, *, influx: bool = False) -> None:
    """Make `ended` and `killed` in a folder: what an aggregator leaves that ends, and one that is killed."""
    scene = Scene(folder / "run")
    scene.store = StoreConfig(write_seconds=1.0, seal_seconds=5.0)
    if influx:
        url = f"http://127.0.0.1:{free_port()}"
        scene.store = StoreConfig(kind=StoreKind.INFLUXDB, write_seconds=1.0, influxdb=InfluxConfig(url=url))
    data = folder / "run" / "data"
    async with scene.running():
        await scene.everything()
        one = scene.aggregator
        for node in (f"{HONEST}-1", f"{HONEST}-2"):
            await one.register.expect(node, "ann", "it is ours", time.time_ns())
        one.drift._watch.since = {"honest-node-1": {"driver": time.time_ns()}}
        await one.drift._keep()
        made, _ = tokens.make("ann", [tokens.AccessScope.ADMIN], time.time_ns())
        tokens.write(data / "tokens.json", [made])
        assert signer_of(data) is not None
        if influx:
            (data / "spool" / "taken").write_text("0 1\n")
        (data / publisher.NAME).write_bytes(msgspec.json.encode(publisher.Announced(), enc_hook=str))
        if not influx:
            scene.clock.ahead += 40 * DAY
        for _ in range(12):
            await scene.second()
        _copy(data, folder / "killed")
    _copy(data, folder / "ended")


def _copy(data: Path, target: Path) -> None:
    shutil.copytree(data, target / "data")


CAPABILITIES = (1, 2)
"""CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: by these root reads what it may not."""


@contextlib.contextmanager
def as_a_user() -> Iterator[None]:
    """Be bound to the permissions of files as any user is, root too, in this thread and those that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    head = (ctypes.c_uint32 * 2)(0x20080522, 0)
    body = (ctypes.c_uint32 * 6)()
    if libc.capget(head, body):
        raise OSError(ctypes.get_errno(), "capget")
    whole = body[0]
    for capability in CAPABILITIES:
        body[0] &= ~(1 << capability) & 0xFFFFFFFF
    if libc.capset(head, body):
        raise OSError(ctypes.get_errno(), "capset")
    try:
        yield
    finally:
        body[0] = whole
        libc.capset(head, body)


EVERY = os.environ.get("KILOWATCH_DAMAGES") == "all" or size(False, True)
"""Whether every file kind is damaged in every way, which takes a quarter of an hour of two cores; else in three."""


def cases(every: bool) -> list[tuple[DamagedKind, Damage]]:
    """Return the kinds and damages that are tried."""
    found = []
    for number, kind in enumerate(KINDS):
        fitting = [damage for damage in DAMAGES if damage.fits(kind)]
        whole = [one for one in fitting if not one.name.startswith(("cut", "flipped"))]
        chosen = {"cut at 5/10", "flipped at 3/10", whole[number % len(whole)].name}
        found += [(kind, damage) for damage in fitting if every or damage.name in chosen]
    return found


def damaged(made: Path, folder: Path, kind: DamagedKind, damage: Damage) -> Path:
    """Copy what an aggregator has left into a folder, damage one of its files, and return that one's path."""
    shutil.copytree(left_by(made, kind), folder, dirs_exist_ok=True)
    return spoil(folder / "data", kind, damage)


def spoil(data: Path, kind: DamagedKind, damage: Damage) -> Path:
    """Damage a file of a data folder, and return its path."""
    path = max(data.glob(kind.file))
    damage.apply(path, kind)
    return path


def is_said(kind: DamagedKind, damage: Damage) -> bool:
    """Whether a damage is to be said. A byte that flips may leave a file that can be used."""
    return not re.fullmatch(f"flipped.*|{kind.quiet}", damage.name)


def left_by(made: Path, kind: DamagedKind) -> Path:
    """Return the folder of what an aggregator has left that had such a file."""
    return made / ("influx" if kind.influx else "embedded") / ("killed" if kind.killed else "ended")
