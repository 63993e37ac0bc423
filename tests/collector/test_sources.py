"""The registry of sources: what may stand in the configuration."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from collector.config import CollectorConfig
from collector.host.role import AMD, NVIDIA, PCI
from collector.recording.replay import RecordingSource
from collector.simulated import SimulatedSource
from collector.smi.file_source import SmiFileSource
from collector.sources import NVML_LIBRARY, has_nvml, is_elsewhere, make_source
from telemetry.devices import Gpu
from telemetry.errors import ConfigError
from telemetry.wire.inventory import NodeRole

NOW = 1_800_000_000.0


def simulated(spec: str, **settings: object) -> SimulatedSource:
    config = CollectorConfig(source=spec, **settings)  # type: ignore[arg-type]
    source = make_source(spec, config, NOW)
    assert isinstance(source, SimulatedSource)
    return source


def test_a_simulation_begins_now_with_the_first_node() -> None:
    made = simulated("simulated:two-dgx-h100")
    assert made.scenario.name == "two-dgx-h100"
    assert made.scenario.start_tick == int(NOW)
    assert made._node.name == made.scenario.nodes[0]


def test_a_simulation_takes_options() -> None:
    made = simulated(
        "simulated:fleet/node-00003?nodes=5&gpus=2&seed=7&start=100&links=1&faults=xid79@node-00003/1+20s", interval=0.5
    )
    scenario = made.scenario
    assert (len(scenario.nodes), scenario.gpus, scenario.seed) == (5, 2, 7)
    assert (scenario.start_tick, scenario.interval, scenario.links) == (100, 0.5, True)
    (fault,) = scenario.faults
    assert (fault.node, fault.gpu, fault.start) == ("node-00003", 1, 20)
    assert made._node.name == "node-00003"


def test_the_seed_and_the_node_may_come_from_the_configuration() -> None:
    made = simulated("simulated:fleet", seed=9, node="node-00004")
    assert made.scenario.seed == 9
    assert made._node.name == "node-00004"


def test_files_are_sources(tmp_path: Path) -> None:
    path = tmp_path / "a file.xml"
    path.write_text("")
    config = CollectorConfig()
    assert isinstance(make_source(f"nvidia-smi:{path}", config, NOW), SmiFileSource)
    recording = make_source(f"recording:{path}#n7", config, NOW)
    assert isinstance(recording, RecordingSource)
    assert (recording.path, recording.node) == (path, "n7")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nvlm", "there is no source 'nvlm'. Did you mean 'nvml'?"),
        ("dcgm", "Known are auto, none, nvml, amd, nvml+amd, nvidia-smi, simulated, recording"),
        ("amd:/no/such", "/no/such has no folder sys"),
        ("nvml:0", "nvml accepts nothing after a colon"),
        ("simulated", "there is no scenario ''"),
        ("simulated:", "nothing follows the colon"),
        ("simulated:flet", "Did you mean 'fleet'?"),
        ("simulated:fleet?nods=3", "no option 'nods'. Did you mean 'nodes'?"),
        ("simulated:fleet?nodes=three", "nodes='three' is no whole number"),
        ("simulated:fleet/node-0003", "fleet has no node 'node-0003'. Did you mean"),
        ("simulated:fleet?nodes=0", "0 nodes are not possible"),
        ("nvidia-smi:/no/such.xml", "there is no file /no/such.xml"),
        ("recording", "Write recording:FILE"),
        ("recording:/no/such#n1", "there is no file /no/such"),
    ],
)
def test_what_names_no_source_is_an_error_with_a_hint(spec: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_source(spec, CollectorConfig(), NOW)
    assert message in str(caught.value)
    assert str(caught.value).startswith("collector.source: ")


@pytest.mark.parametrize(
    ("spec", "elsewhere"),
    [
        ("auto", False), ("nvml", False), ("amd:/host", False), ("nvml+amd", False), ("nvidia-smi", False), ("nvidia-smi:x", True),
        ("simulated:fleet", True), ("recording:x", True),
    ],
)  # fmt: skip
def test_only_real_gpus_belong_to_this_machine(spec: str, elsewhere: bool) -> None:
    assert is_elsewhere(spec) is elsewhere


def test_auto_takes_nvml_where_its_library_is_else_the_command_else_waits_for_nvml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collector.nvml import NvmlSource
    from collector.smi.command_source import SmiCommandSource

    config = CollectorConfig(role=NodeRole.GPU)  # whatever is on the bus of this machine
    if has_nvml():
        assert isinstance(make_source("auto", config, NOW), NvmlSource)
        pytest.skip(f"{NVML_LIBRARY} is here: the other ways can't be taken")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert isinstance(make_source("auto", config, NOW), NvmlSource)
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    assert isinstance(make_source("auto", config, NOW), SmiCommandSource)


def test_auto_takes_amd_where_amdgpu_drives_a_gpu_and_both_where_both_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collector import sources
    from collector.amd import AmdSource
    from collector.combined.source import CombinedSource

    monkeypatch.setattr(sources, "has_amd", lambda _: True)
    monkeypatch.setattr(sources, "has_nvml", lambda: False)
    assert isinstance(make_source("auto", CollectorConfig(role=NodeRole.GPU), NOW), AmdSource)
    config = CollectorConfig(role=NodeRole.GPU, state_dir=tmp_path)
    assert sources.real_source(config, NOW) == "amd"
    monkeypatch.setattr(sources, "has_nvml", lambda: True)
    made = make_source("auto", CollectorConfig(role=NodeRole.GPU), NOW)
    assert isinstance(made, CombinedSource)
    assert sources.is_probed(made)
    assert sources.real_source(config, NOW) == "nvml+amd"
    given = msgspec.structs.replace(config, source="amd:/host")
    assert sources.real_source(given, NOW) == "amd:/host"


@pytest.mark.parametrize(
    ("bus", "known", "kind"),
    [
        ({AMD: 8}, [], "amd"),
        ({}, ["AMD Instinct MI300X"], "amd"),
        ({NVIDIA: 8, AMD: 1}, [], "nvml"),  # a display on the mainboard
        ({NVIDIA: 4, AMD: 4}, ["AMD Instinct MI300X", "NVIDIA H100"], "nvml+amd"),
        ({NVIDIA: 8}, [], "nvml"),
        ({}, ["AMD Instinct MI300X", "NVIDIA H100"], "nvml+amd"),
    ],
)
def test_a_driver_that_is_gone_is_that_of_the_gpus_on_the_bus_or_of_before(
    bus: dict[str, int], known: list[str], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither library nor module is there, as after a failed upgrade."""
    from collector import sources
    from collector.host import role
    from collector.sampling import known_devices

    monkeypatch.setattr(sources, "has_amd", lambda _: False)
    monkeypatch.setattr(sources, "has_nvml", lambda: False)
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi either
    monkeypatch.setattr(role, "gpus_on_the_bus", lambda *_, vendors: sum(bus.get(each, 0) for each in vendors))
    gpus = tuple(Gpu(uuid=f"GPU-{name}", index=0, name=name) for name in known)
    monkeypatch.setattr(known_devices, "recall", lambda *_: known_devices.KnownGpus(gpus=gpus))
    config = CollectorConfig(role=NodeRole.GPU, state_dir=tmp_path)
    assert sources.real_source(config, NOW) == kind
    assert make_source("auto", config, NOW).inventory.source == kind


@pytest.mark.parametrize(("vendor", "kind"), [(None, "none"), ("0x15b3", "none"), (NVIDIA, "nvml"), (AMD, "amd")])
def test_auto_goes_by_the_bus_of_the_node_whose_files_are_elsewhere(
    vendor: str | None, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container: `collector.host_root` says where; the machine of the test plays no part."""
    from collector import sources

    monkeypatch.setattr(sources, "has_nvml", lambda: False)
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi either
    devices = tmp_path / "host" / PCI
    devices.mkdir(parents=True)
    if vendor is not None:
        (devices / "0000:1b:00.0").mkdir()
        (devices / "0000:1b:00.0" / "vendor").write_text(f"{vendor}\n")
        kind_of_device = "0x020000" if vendor == "0x15b3" else "0x030200"
        (devices / "0000:1b:00.0" / "class").write_text(f"{kind_of_device}\n")
    config = CollectorConfig(host_root=tmp_path / "host", state_dir=tmp_path)
    assert make_source("auto", config, NOW).inventory.source == kind
