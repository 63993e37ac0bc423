"""Checks of `kilowatch doctor`: each returns a finding and its remedy."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from aggregator.assembly.store_choice import inspect_server
from aggregator.config import AggregatorConfig
from collector.commands.jobs_once import jobs_once
from collector.commands.once import once
from collector.host.clock import read_clock
from collector.sources import real_source
from kilowatch.doctor.access import broker_access, http_access, secret_files, state_folders
from kilowatch.doctor.finding import DoctorFinding
from kilowatch.doctor.rights import bus_rights
from kilowatch.doctor.role import MachineRole
from kilowatch.recovery.config import RecoverConfig, StepKind, check_program
from kilowatch.settings import Settings
from kilowatch.stack.ports import is_free
from present.units import gibibytes
from telemetry.errors import BusError, ConfigError, KilowattError
from telemetry.files import local_token
from telemetry.text import counted
from telemetry.text.connection_faults import NOBODY
from telemetry.wire.jobs import JobSourceState
from telemetry.wire.mqtt import BrokerConfig, client_id, connect

_NO_BROKER = "apt-get install mosquitto && systemctl start mosquitto; one machine alone: kilowatch run brings its own"
SMALL_DISK = 2 * 1024**3
"""Free bytes below which `doctor` warns."""


async def run_checks(settings: Settings, role: MachineRole, why: str) -> list[DoctorFinding]:
    """Check everything that kilowatch needs on a machine of this role; the last finding is the verdict.
    `why`: what the role follows from."""
    found = [DoctorFinding(subject="role", level="ok", text=f"{role}, by {why}")]
    folders = []
    if role.collects:
        folders.append(settings.collector.state_dir)
        found += [await driver(settings), await gpu_processes(settings), kernel_log(settings)]
    if role is not MachineRole.VIEWER:
        found += [
            *await brokers(settings.broker),
            *[finding for one in settings.broker.each() for finding in await broker_access(one, settings.cluster)],
            *await bus_rights(settings, role),
        ]
    if role.aggregates:
        folders.append(settings.aggregator.data_dir)
        found += await store_server(settings.aggregator)
    found += [clock(), *disks(folders), *state_folders(folders), *secret_files(settings)]
    if role.aggregates:
        found += http_access(settings.aggregator)
        found += [port(settings.aggregator.listen)] if settings.aggregator.listen else []
    found += hooks(settings.recover)
    return [*found, verdict(role, found)]


def verdict(role: MachineRole, found: Sequence[DoctorFinding]) -> DoctorFinding:
    """Return what all findings together say of a machine."""
    faults, warnings = (sum(each.level == level for each in found) for level in ("fault", "warning"))
    parts = [counted(count, word) for count, word in ((faults, "fault"), (warnings, "warning")) if count]
    what = {"both": "collector and aggregator"}.get(role, role.value)
    text = f"{what}: {'does not work' if faults else 'works'}"
    return DoctorFinding(
        subject="verdict",
        level="fault" if faults else "warning" if warnings else "ok",
        text=f"{text}, {', '.join(parts)}" if parts else text,
    )


_TOOLS = {
    "nvml": ("nvidia-smi -q | head", "nvidia-smi --gpu-reset -i INDEX"),
    "amd": ("amd-smi list", "amd-smi reset --gpureset --gpu INDEX"),
    "nvml+amd": ("nvidia-smi -q | head; amd-smi list", "nvidia-smi or amd-smi: reset the GPU"),
}
"""Commands that show the driver, and that reset a GPU, by source."""


async def driver(settings: Settings) -> DoctorFinding:
    """Read every GPU once, as the collector would."""
    source = real_source(settings.collector, time.time())
    config = msgspec.structs.replace(settings.collector, source=source, node_readings=False)
    tool, reset = _TOOLS[source.partition(":")[0]]
    document = await once(config)
    inventory = document["inventory"]
    state, gpus = inventory["driver_state"], document["gpus"]
    if state != "up":
        return DoctorFinding(
            subject="driver",
            level="fault",
            text=f"the GPU driver is {state}: {inventory['driver_message']}",
            cure=f"{tool}  (shows more); without GPUs: kilowatch demo",
        )
    lost = [gpu for gpu in inventory["gpus"] if not gpu["present"]]
    if lost:
        return DoctorFinding(
            subject="driver",
            level="fault",
            text=f"{len(lost)} of {len(gpus)} GPUs are lost: {', '.join(g['pci'] for g in lost)}",
            cure=f"{reset}, or reboot",
        )
    return DoctorFinding(subject="driver", level="ok", text=f"{inventory['driver_version']}, {len(gpus)} GPUs answer")


async def gpu_processes(settings: Settings) -> DoctorFinding:
    """Look once who uses the GPUs, as the collector would."""
    subject = "jobs"
    if not settings.jobs.enabled:
        return DoctorFinding(subject=subject, level="ok", text="switched off: jobs.enabled = false")
    source = real_source(settings.collector, time.time())
    inventory, found = await jobs_once(msgspec.structs.replace(settings.collector, source=source))
    if inventory.driver_state != "up":
        text = "who uses the GPUs is not known while the driver is not up"
        return DoctorFinding(subject=subject, level="warning", text=text)
    problems = [each for each in found.sources if each.state in {"no permission", "failing"} or each.unattributed]
    if problems:
        text = "; ".join(f"{each.name}: {_trouble(each)}" for each in problems)
        cure = " ".join(each.message for each in problems)
        return DoctorFinding(subject=subject, level="warning", text=text, cure=cure)
    hidden = sum(bool(each.hidden) for each in found.processes)
    text = f"processes on the GPUs: {len(found.processes)}"
    text += f", {hidden} of them without a known owner" if hidden else ""
    absent = [each.name for each in found.sources if each.state == "absent"]
    text += f"; not here: {', '.join(absent)}" if absent else ""
    return DoctorFinding(subject=subject, level="ok", text=text)


def _trouble(source: JobSourceState) -> str:
    missed = sum(source.unattributed.values())
    return f"{counted(missed, 'device')} of pods without a GPU here" if missed else source.state


def kernel_log(settings: Settings, path: Path = Path("/dev/kmsg")) -> DoctorFinding:
    """Check that the kernel log, which has the XIDs, can be read: most users may not."""
    named = settings.collector.kernel_log
    if named not in (None, "auto"):
        path = Path(str(named))
    if not path.exists():
        return DoctorFinding(
            subject="kernel log", level="warning", text=f"{path} is not there: XIDs come from the driver's events only"
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


async def brokers(config: BrokerConfig) -> list[DoctorFinding]:
    """Connect to each broker of the list. One that does not let us in is a fault only where no other
    does: those are used in its place."""
    found = await asyncio.gather(*(broker(one) for one in config.each()))
    if not any(each.level == "ok" for each in found):
        return found
    return [
        each
        if each.level == "ok"
        else msgspec.structs.replace(
            each, level="warning", text=f"{each.text}; another of broker.hosts is used meanwhile"
        )
        for each in found
    ]


async def broker(config: BrokerConfig) -> DoctorFinding:
    """Connect to the broker as a client."""
    where = f"{config.host}:{config.port}"
    try:
        async with asyncio.timeout(8), connect(config, client_id("kilowatch-doctor")):
            pass
    except (KilowattError, TimeoutError) as error:
        problem, cure = str(error), ""
        if isinstance(error, BusError):
            problem, cure = error.problem, error.cure
        return DoctorFinding(
            subject="broker",
            level="fault",
            text=problem or f"{where} does not answer",
            cure=cure if cure and NOBODY not in problem else _NO_BROKER,
        )
    return DoctorFinding(subject="broker", level="ok", text=f"{where} lets us in")


async def store_server(config: AggregatorConfig) -> list[DoctorFinding]:
    """Check the server behind the store as the store uses it, where there is one."""
    found = await asyncio.to_thread(inspect_server, config.store, time.time())
    return [
        DoctorFinding(subject=config.store.kind.value, level=each.level, text=each.text, cure=each.cure)
        for each in found
    ]


def clock() -> DoctorFinding:
    """Check that a time service disciplines this machine's clock."""
    try:
        state = read_clock()
    except OSError as error:
        text = f"the kernel does not report its state: {error.strerror}"
        return DoctorFinding(subject="clock", level="warning", text=text)
    if not state.synchronised:
        return DoctorFinding(
            subject="clock",
            level="warning",
            text="the clock is not synchronised: lag and skew can't be distinguished",
            cure="timedatectl set-ntp true  (or run chrony)",
        )
    return DoctorFinding(subject="clock", level="ok", text=f"synchronised, within {state.estimated_error:.3f} s")


def disks(folders: Sequence[Path]) -> list[DoctorFinding]:
    """Check that the data folders can be written and have room."""
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
    text = f"{folder}: {gibibytes(free)} free"
    if free < SMALL_DISK:
        return DoctorFinding(subject="disk", level="warning", text=text, cure="lower aggregator.store.max_bytes")
    return DoctorFinding(subject="disk", level="ok", text=text)


def hooks(config: RecoverConfig) -> list[DoctorFinding]:
    """Check that the hooks of `kilowatch recover` can be run on this machine, and that nobody else can
    change them."""
    found = []
    for step in StepKind:
        argv = config.argv(step)
        if argv is None:
            continue
        try:
            check_program(f"recover.hooks.{step}", argv)
        except ConfigError as error:
            text = f"{error.where}: {error.problem}"
            cure = error.hint or "install it (deploy/), or name another program"
            found.append(DoctorFinding(subject="hooks", level="fault", text=text, cure=cure))
        else:
            text = f"{step}: {argv[0]} can be run"
            found.append(DoctorFinding(subject="hooks", level="ok", text=text))
    if not found:
        text = "none is configured: `kilowatch recover` prints the steps, and can't carry them out"
        found.append(DoctorFinding(subject="hooks", level="ok", text=text))
    return found


def port(listen: str) -> DoctorFinding:
    """Check that the aggregator's port is free."""
    host, _, number = listen.rpartition(":")
    if is_free(host.strip("[]"), int(number)):
        return DoctorFinding(subject="port", level="ok", text=f"{listen} is free")
    if local_token.find_at(host.strip("[]"), int(number)):
        return DoctorFinding(subject="port", level="ok", text=f"kilowatch listens on {listen}")
    return DoctorFinding(
        subject="port",
        level="warning",
        text=f"a process listens on {listen}; fine if it is kilowatch",
        cure=f"ss -ltnp 'sport = :{number}'  (names it); choose another: --http 127.0.0.1:9500",
    )
