"""The registry of sources: what may stand in the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.config import CollectorConfig
from collector.recording.replay import RecordingSource
from collector.simulated import SimulatedSource
from collector.smi.file_source import SmiFileSource
from collector.sources import NVML_LIBRARY, has_nvml, is_elsewhere, make_source
from telemetry.errors import ConfigError

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
        "simulated:fleet/node-00003?nodes=5&gpus=2&seed=7&start=100&links=1"
        "&faults=xid79@node-00003/1+20s",
        interval=0.5,
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
        ("dcgm", "Known are auto, nvml, nvidia-smi, simulated, recording"),
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
        ("auto", False), ("nvml", False), ("nvidia-smi", False), ("nvidia-smi:x", True),
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

    if has_nvml():
        assert isinstance(make_source("auto", CollectorConfig(), NOW), NvmlSource)
        pytest.skip(f"{NVML_LIBRARY} is here: the other ways can't be taken")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert isinstance(make_source("auto", CollectorConfig(), NOW), NvmlSource)
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    assert isinstance(make_source("auto", CollectorConfig(), NOW), SmiCommandSource)
