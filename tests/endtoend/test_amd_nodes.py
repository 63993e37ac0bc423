"""GPUs of AMD from their files to whoever is called: the real collector, a real broker, the real aggregator.

One cluster of three nodes: eight MI300X, two H100 beside four MI300X, and four H100. First what is no fault, then each
fault on a GPU of its own. The shipped rules are evaluated, whose times alone are shortened.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from alerts.rules.rule import FOLDER, read
from api.alerts import Severity
from collector.amd import AmdSource
from collector.combined.source import CombinedSource
from collector.nvml import NvmlSource
from collector.source import Source
from kilowatch.__main__ import main
from telemetry.catalogue import BY_NAME
from telemetry.metric import Table
from tests.alerts.pager import Pager
from tests.brokers import Mosquitto
from tests.collector.bus import collecting, config_of
from tests.endtoend import watch as watch_module
from tests.endtoend.test_nodes_of_each_kind import sooner
from tests.endtoend.watch import Watch, toml, until, watching
from tests.fake_amd import FakeAmd
from tests.fake_nvml import FakeDriver

INTERVAL = 0.5
WINDOW = 8
LINE = "amdgpu {}: amdgpu: {}"
POWER = """
[power]
region = "EU"
[power.circuits.a]
breaker = 63
poles = 3
nodes = ["amd", "both", "nvidia"]
[power.nodes.amd]
profile = "mi300x-platform"
[power.nodes.both]
gpus = ["2x H100 SXM5 80GB", "4x Instinct MI300X"]
host_watts = 2000
[power.nodes.nvidia]
gpus = "4x H100 SXM5 80GB"
host_watts = 1500
"""


class Drivers:
    """The fake drivers of the three nodes."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.folder = folder
        for name in ("amd", "both", "nvidia"):
            (folder / name).mkdir()
        self.amd = stack.enter_context(FakeAmd(folder / "amd", gpus=8))
        self.beside = stack.enter_context(FakeAmd(folder / "both", gpus=4))
        self.h100 = stack.enter_context(FakeDriver(folder / "both", gpus=2, links=2))
        self.nvidia = stack.enter_context(FakeDriver(folder / "nvidia", gpus=4, links=2))
        self.cycles = 0

    def sources(self) -> dict[str, Source]:
        """Return the source of each node."""

        def amd(fake: FakeAmd) -> AmdSource:
            return AmdSource(
                fake.root, environment=fake.environment, open_wait=20.0, retry=(0.1, 0.5), scout=(0.1, 0.5)
            )

        def nvml(fake: FakeDriver) -> NvmlSource:
            return NvmlSource(environment=fake.environment, open_wait=20.0)

        return {
            "amd": amd(self.amd),
            "both": CombinedSource([nvml(self.h100), amd(self.beside)]),
            "nvidia": nvml(self.nvidia),
        }

    def say(self, node: str, pci: str, text: str) -> None:
        """Write a line into the kernel log of a node."""
        with (self.folder / node / "kernel.log").open("a") as log:
            log.write(LINE.format(pci, text) + "\n")

    def throttle(self, gpu: int, name: str) -> None:
        """Let the firmware count cycles in which a throttler of a GPU is active, and as many others."""
        self.cycles += 500
        self.amd.table(gpu, accumulation_counter=1000 + 2 * self.cycles, **{name: self.cycles})


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Drivers]:
    with contextlib.ExitStack() as stack:
        yield Drivers(tmp_path, stack)


def firing(watch: Watch, node: str) -> dict[str, set[str]]:
    """Return the alerts of a node that fire, as PCI addresses by rule."""
    found = watch.get("/api/v1/alerts?state=firing") or {"alerts": []}
    by_rule: dict[str, set[str]] = {}
    for alert in found["alerts"]:
        if alert["node"] == node and alert["severity"] != "info":
            by_rule.setdefault(alert["rule"], set()).add(alert["labels"].get("pci", ""))
    return by_rule


def text_of(watch: Watch, path: str) -> str:
    with urllib.request.urlopen(f"http://{watch.http}{path}", timeout=30) as answer:
        return str(answer.read().decode())


@pytest.mark.systems
async def test_each_fault_of_amds_gpus_calls_somebody_and_both_makers_are_one_cluster(
    drivers: Drivers, tmp_path: Path, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = sooner((FOLDER / "rules.toml").read_text())
    rules = re.sub(r"window = 300\b", f"window = {WINDOW}", rules)
    rules = re.sub(r"wait = \d+", "wait = 1", rules)
    monkeypatch.setattr(watch_module, "RULES", rules)
    shipped = {rule.name: rule.severity for rule in read(FOLDER / "rules.toml")}
    amd, pager = drivers.amd, Pager()
    async with pager.listening(), contextlib.AsyncExitStack() as stack:
        settings = toml({"oncall": pager.settings(tmp_path)}) + POWER
        watch = stack.enter_context(watching(tmp_path / "watch", mosquitto, settings, "tests.endtoend.hurried"))
        for name, source in drivers.sources().items():
            log = tmp_path / name / "kernel.log"
            log.touch()
            config = config_of(
                mosquitto.config,
                tmp_path / name / "state",
                node=name,
                source="nvml+amd",
                interval=INTERVAL,
                slow_interval=2 * INTERVAL,
                kernel_log=str(log),
                ring_enabled=False,
            )
            await stack.enter_async_context(collecting(config, source))
        await until("all GPUs", lambda: _counts(watch) == {"amd": 8, "both": 6, "nvidia": 4}, 120)
        await asyncio.to_thread(_is_one_cluster, watch, drivers)
        for step in range(int(WINDOW / INTERVAL)):  # what is no fault
            drivers.throttle(6, "ppt")  # the power cap holds it, as every busy GPU's
            amd.errors(7, "umc", ce=0xFFFF0 * (step + 1))
            amd.table(5, average_gfx_activity=65535, current_socket_power=65535)
            for text in (
                "no uncorrectable hardware errors detected in umc block",
                "GPU reset(1) succeeded!",
                "[gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3 pasid:32770)",
                "2 correctable hardware errors detected in total in umc block",
            ):
                drivers.say("amd", amd.pci(6), text)
            await asyncio.sleep(INTERVAL)
        assert {name: await asyncio.to_thread(firing, watch, name) for name in drivers.sources()} == {
            "amd": {},
            "both": {},
            "nvidia": {},
        }
        await _capped(drivers, watch)
        assert pager.opened == {}
        await _faults(drivers, watch)
        pages = {
            "ras_uncorrected", "ecc_uncorrected", "gpu_hung", "gpu_lost", "thermal_hw", "remap_failure",
            "driver_fault",
        }  # fmt: skip
        assert {shipped[rule] for rule in pages} == {Severity.PAGE}
        await until("the pages", lambda: _paged(pager, pages) == pages, 60)
        for name in ("both", "nvidia"):
            assert await asyncio.to_thread(firing, watch, name) == {}
        drivers.beside.unload()
        await until("the driver", lambda: "driver_down" in firing(watch, "both"))
        others = await asyncio.to_thread(_readings, watch, "both", 0)
        assert others["gpu_power_watts"] > 0, "the other maker's GPUs are read on"
        drivers.beside.load()
        await until("its return", lambda: firing(watch, "both") == {})


async def _capped(drivers: Drivers, watch: Watch) -> None:
    """Wait until the power cap is read as one; a machine that is too busy leaves gaps between."""
    readings: dict[str, Any] = {}
    for _ in range(240):
        drivers.throttle(6, "ppt")
        await asyncio.sleep(INTERVAL)
        readings = await asyncio.to_thread(_readings, watch, "amd", 6)
        if readings.get("gpu_clocks_event_sw_power_cap") == 1:
            break
    assert readings["gpu_clocks_event_sw_power_cap"] == 1
    assert readings["gpu_clocks_event_sw_power_cap_seconds_total"] > 0


async def _faults(drivers: Drivers, watch: Watch) -> None:
    """Do each fault to a GPU of its own, until all of them fire."""
    amd = drivers.amd
    drivers.say("amd", amd.pci(0), "{3}socket: 4, die: 0, 1 new uncorrectable hardware errors detected in umc block")
    amd.set(2, state="hang")
    amd.set(3, state="lost")
    amd.set(4, state="reset")  # and it does not end
    drivers.say("amd", amd.pci(6), "GPU reset(2) failed")
    amd.file(7, "ras/gpu_vram_bad_pages", "0x1 : 0x1000 : F\n")
    expected = {
        "ras_uncorrected": {amd.pci(0)},
        "ecc_uncorrected": {amd.pci(1)},
        "gpu_hung": {amd.pci(2)},
        "gpu_lost": {amd.pci(3), amd.pci(4)},
        "thermal_hw": {amd.pci(5)},
        "driver_fault": {amd.pci(6)},
        "remap_failure": {amd.pci(7)},
    }
    found: dict[str, set[str]] = {}
    for count in range(1, 240):
        amd.errors(1, "umc", ue=count)
        drivers.throttle(5, "vr_thm")
        await asyncio.sleep(INTERVAL)
        for rule, places in (await asyncio.to_thread(firing, watch, "amd")).items():
            found.setdefault(rule, set()).update(places)
        if all(places <= found.get(rule, set()) for rule, places in expected.items()):
            break
    assert {rule: found.get(rule) for rule in expected} == expected


def _counts(watch: Watch) -> dict[str, int]:
    """Return the GPUs of each node whose power is read."""
    found = watch.get("/api/v1/nodes") or {"nodes": []}
    return {
        each["node"]: sum(
            gpu["readings"].get("gpu_power_watts") is not None
            for gpu in (watch.get(f"/api/v1/nodes/{each['node']}") or {"gpus": []})["gpus"]
        )
        for each in found["nodes"]
    }


def _readings(watch: Watch, node: str, gpu: int) -> dict[str, Any]:
    return dict(watch.get(f"/api/v1/nodes/{node}")["gpus"][gpu]["readings"])


def _paged(pager: Pager, rules: set[str]) -> set[str]:
    text = str([call.body for call in pager.calls])
    return {rule for rule in rules if re.search(rf"\b{rule}\b", text)}


def _is_one_cluster(watch: Watch, drivers: Drivers) -> None:
    """Check that GPUs of both makers are everywhere by the same rows."""
    page = watch.get("/api/v1/nodes/both")
    names = [gpu["gpu"]["name"] for gpu in page["gpus"]]
    assert [name.split()[0] for name in names] == ["NVIDIA"] * 2 + ["AMD"] * 4
    both = [drivers.h100.uuid(0), drivers.beside.uuid(3)]
    for path in ("/metrics/node/both", "/metrics/dcgm/both"):
        text = text_of(watch, path)
        assert all(uuid in text for uuid in both), path
    dcgm = text_of(watch, "/metrics/dcgm/both")
    power = [line for line in dcgm.splitlines() if line.startswith("DCGM_FI_DEV_POWER_USAGE{")]
    assert max(float(line.rpartition(" ")[2]) for line in power) == 612
    assert len(power) == 6
    ours = {metric.name for metric in BY_NAME.values() if metric.table is Table.GPU and "amd" in metric.sources}
    served = {name for name, value in page["gpus"][5]["readings"].items() if value is not None}
    assert served - ours <= {"gpu_driver_latency_seconds"}
    assert {"gpu_power_watts", "gpu_temperature_celsius", "gpu_utilization_ratio"} <= served
    html = text_of(watch, "/nodes/both")
    assert "MI300X" in html
    assert "H100" in html
    said = {}
    for command in ("nodes list", "circuits", "report", "drift", "status"):
        done = CliRunner().invoke(main, [*command.split(), "--http", watch.http, "--json"])
        assert done.exit_code in {0, 1, 2, 3}, (command, done.output)  # a node is no group
        said[command] = json.loads(done.stdout)
    (report,) = said["report"].values()
    models = report["gpus"]
    assert sum(count for name, count in models.items() if "MI300X" in name) == 12
    assert sum(models.values()) == 18, "the bill's GPUs are of both makers"
    summary = watch.get("/api/v1/status")["summary"]["models"]
    assert {each["model"].split()[0] for each in summary} == {"AMD", "NVIDIA"}
