"""The examinations of `kilowatch doctor`: each returns what it found and what to do about it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from aggregator.config import AggregatorConfig, StoreKind
from aggregator.influx.client import InfluxClient
from aggregator.influx.inspection import inspect
from collector.sampling.once import once
from kilowatch.settings import Settings
from kilowatch.stack.ports import is_free
from telemetry.errors import KilowattError
from telemetry.mqtt import BrokerConfig, connect

SMALL_DISK = 2 * 1024**3
"""Free bytes below which a store is a worry."""
_STA_UNSYNC = 0x0040
_TIME_ERROR = 5


class DoctorFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    subject: str
    level: str
    """`ok`, `warning` (works, but) or `fault` (does not work)."""
    text: str
    cure: str = ""
    """A command or a change that mends it."""


async def examine(settings: Settings) -> list[DoctorFinding]:
    """Look at everything that kilowatch needs on this machine."""
    return [
        await driver(settings),
        kernel_log(settings),
        await broker(settings.broker),
        *await influxdb(settings.aggregator),
        clock(),
        *disks((settings.collector.state_dir, settings.aggregator.data_dir)),
        port(settings.aggregator.listen),
    ]


async def driver(settings: Settings) -> DoctorFinding:
    """Read every GPU once, as the collector would."""
    config = msgspec.structs.replace(settings.collector, source="nvml", node_readings=False)
    document = await once(config)
    inventory = document["inventory"]
    state, gpus = inventory["driver_state"], document["gpus"]
    if state != "up":
        return DoctorFinding(
            subject="driver",
            level="fault",
            text=f"the GPU driver is {state}: {inventory['driver_message']}",
            cure="nvidia-smi -q | head  (says more); without GPUs: kilowatch demo",
        )
    lost = [gpu for gpu in inventory["gpus"] if not gpu["present"]]
    if lost:
        return DoctorFinding(
            subject="driver",
            level="fault",
            text=f"{len(lost)} of {len(gpus)} GPUs are lost: {', '.join(g['pci'] for g in lost)}",
            cure="nvidia-smi --gpu-reset -i INDEX, or reboot",
        )
    return DoctorFinding(
        subject="driver",
        level="ok",
        text=f"{inventory['driver_version']}, {len(gpus)} GPUs answer",
    )


def kernel_log(settings: Settings, path: Path = Path("/dev/kmsg")) -> DoctorFinding:
    """XIDs stand in the kernel's log, which is closed to most users."""
    named = settings.collector.kernel_log
    if named not in (None, "auto"):
        path = Path(str(named))
    if not path.exists():
        return DoctorFinding(
            subject="kernel log",
            level="warning",
            text=f"{path} is not there: XIDs come from the driver's events only",
        )
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        return DoctorFinding(
            subject="kernel log",
            level="warning",
            text=f"{path}: {error.strerror}; XIDs come from the driver's events only",
            cure="give the service AmbientCapabilities=CAP_SYSLOG, or run it as root",
        )
    return DoctorFinding(subject="kernel log", level="ok", text=f"{path} can be read")


async def broker(config: BrokerConfig) -> DoctorFinding:
    """Enter the broker as a client would."""
    where = f"{config.host}:{config.port}"
    try:
        async with asyncio.timeout(8), connect(config, f"kilowatch-doctor-{os.getpid()}"):
            pass
    except (KilowattError, TimeoutError) as error:
        return DoctorFinding(
            subject="broker",
            level="fault",
            text=str(error) or f"{where} does not answer",
            cure="apt-get install mosquitto && systemctl start mosquitto; one machine alone: "
            "kilowatch run brings its own",
        )
    return DoctorFinding(subject="broker", level="ok", text=f"{where} lets us in")


async def influxdb(config: AggregatorConfig) -> list[DoctorFinding]:
    """Meet the InfluxDB server as the store would, where it is the store."""
    if config.store.kind is not StoreKind.INFLUXDB:
        return []
    with InfluxClient(config.store.influxdb) as client:
        found = await asyncio.to_thread(inspect, client, time.time())
    return [
        DoctorFinding(subject="influxdb", level=each.level, text=each.text, cure=each.cure)
        for each in found
    ]


class _Timex(ctypes.Structure):
    """The head of struct timex; the kernel writes more behind it."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def clock() -> DoctorFinding:
    """Ask the kernel whether somebody keeps its clock right."""
    timex = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state < 0:
        return DoctorFinding(subject="clock", level="warning", text="the kernel does not say")
    if state == _TIME_ERROR or timex.status & _STA_UNSYNC:
        return DoctorFinding(
            subject="clock",
            level="warning",
            text="the clock is not synchronised: lag and skew can't be told apart",
            cure="timedatectl set-ntp true  (or run chrony)",
        )
    return DoctorFinding(
        subject="clock", level="ok", text=f"synchronised, within {timex.esterror / 1e6:.3f} s"
    )


def disks(folders: Sequence[Path]) -> list[DoctorFinding]:
    """Can we write where data should stay, and is there room?"""
    return [_disk(folder) for folder in dict.fromkeys(folders)]


def _disk(folder: Path) -> DoctorFinding:
    there = folder
    while not there.exists():
        there = there.parent
    if not os.access(there, os.W_OK | os.X_OK):
        return DoctorFinding(
            subject="disk",
            level="fault",
            text=f"{folder} can't be written",
            cure=f"mkdir -p {folder} && chown $USER {folder}, or name another folder",
        )
    free = shutil.disk_usage(there).free
    text = f"{folder}: {free / 1024**3:.1f} GiB free"
    if free < SMALL_DISK:
        return DoctorFinding(
            subject="disk", level="warning", text=text, cure="lower aggregator.store.max_bytes"
        )
    return DoctorFinding(subject="disk", level="ok", text=text)


def port(listen: str) -> DoctorFinding:
    """Is the aggregator's port free, or taken by an aggregator?"""
    host, _, number = listen.rpartition(":")
    if is_free(host.strip("[]"), int(number)):
        return DoctorFinding(subject="port", level="ok", text=f"{listen} is free")
    return DoctorFinding(
        subject="port",
        level="warning",
        text=f"somebody listens on {listen}; fine if it is kilowatch",
        cure=f"ss -ltnp 'sport = :{number}'  (says who); choose another: --http 127.0.0.1:9500",
    )
