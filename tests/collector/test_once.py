"""`kilowatch collect --once --json`: the document and its numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.commands.once import natural, once
from collector.config import CollectorConfig
from telemetry.errors import ConfigError
from telemetry.metric import Table
from telemetry.wire.schema import SCHEMA
from tests.fakes import FakeSource


def config_of(folder: Path, source: str = "nvml", node_readings: bool = True) -> CollectorConfig:
    return CollectorConfig(node="n1", source=source, state_dir=folder, kernel_log=None, node_readings=node_readings)


async def test_the_document_holds_every_metric_once(tmp_path: Path) -> None:
    source = FakeSource(gpus=2, links=1)
    source.lose(1)
    found = await once(config_of(tmp_path, node_readings=False), source)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(found) == ["inventory", "gpus", "links", "ports", "instances", "node", "events"]
    assert "schema" not in found["inventory"]
    alive, lost = found["gpus"]
    assert (alive["uuid"], alive["index"], alive["name"]) == ("GPU-0000", 0, "Fake H100")
    assert set(lost["gaps"].values()) == {"device_lost"}
    for table, rows in ((Table.GPU, found["gpus"]), (Table.LINK, found["links"]), (Table.NODE, [found["node"]])):
        names = {name for block in SCHEMA.blocks if block.table is table for name in block.names}
        for row in rows:
            assert row["readings"].keys() | row["gaps"].keys() == names
            assert not row["readings"].keys() & row["gaps"].keys()
    assert found["events"][0]["kind"] == "gpu_lost"
    assert found["node"]["readings"]["node_gpus_answering"] == 1
    assert source.closed
    assert not list(tmp_path.iterdir())  # no ring, no lock


async def test_numbers_are_those_of_the_source_to_the_last_bit(tmp_path: Path) -> None:
    """Not those of a frame, whose gauges are float32: 29.7 would be 29.700000762939453."""
    source = FakeSource(gpus=1)
    source.values = lambda block, tick: (  # type: ignore[method-assign]
        [[29.7] * len(SCHEMA.blocks[block].names)] if SCHEMA.blocks[block].table is Table.GPU else []
    )
    found = await once(config_of(tmp_path, node_readings=False), source)
    assert set(found["gpus"][0]["readings"].values()) == {29.7}


async def test_a_simulated_node_speaks_for_itself(tmp_path: Path) -> None:
    found = await once(config_of(tmp_path, "simulated:two-dgx-h100/dgx-02?seed=3"))
    assert len(found["gpus"]) == 8
    assert found["node"]["readings"]["node_wall_power_watts"] > 1000
    assert found["inventory"]["source"] == "simulated:two-dgx-h100"


async def test_a_host_is_read_twice_for_its_rates(tmp_path: Path) -> None:
    found = await once(config_of(tmp_path), FakeSource(gpus=0))
    readings = found["node"]["readings"]
    assert readings["node_memory_available_bytes"] > 0
    assert 0 <= readings["node_cpu_utilization_ratio"] <= 1
    assert found["inventory"]["host"]["kernel"]
    assert found["gpus"] == []


async def test_a_saved_log_gives_its_numbers(captures: Path, tmp_path: Path) -> None:
    path = captures / "smi_xml" / "telegraf_tesla-t4.xml"
    found = await once(config_of(tmp_path, f"nvidia-smi:{path}"))
    (gpu,) = found["gpus"]
    text = path.read_text()
    assert f"<uuid>{gpu['uuid']}</uuid>" in text
    assert f"<gpu_temp>{gpu['readings']['gpu_temperature_celsius']} C</gpu_temp>" in text
    assert found["inventory"]["driver_version"] in text
    # This machine is not the one of the log: nothing of it may stand beside.
    assert set(found["node"]["readings"]) == {"node_driver_up", "node_gpus_expected", "node_gpus_answering"}


async def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        await once(config_of(tmp_path, "nvidia-smi:/no/such/file"))


@pytest.mark.parametrize(
    ("number", "text"), [(29.7, "29.7"), (1.0, "1"), (0.0, "0"), (1.5e12, "1500000000000"), (1e-9, "1e-09"), (3, "3")]
)
def test_numbers_print_as_people_write_them(number: float, text: str) -> None:
    assert json.dumps(natural(number)) == text


async def test_infinity_is_an_error_and_not_json(tmp_path: Path) -> None:
    source = FakeSource(gpus=1)
    source.values = lambda block, tick: (  # type: ignore[method-assign]
        [[float("inf")] * len(SCHEMA.blocks[block].names)] if SCHEMA.blocks[block].table is Table.GPU else []
    )
    found = await once(config_of(tmp_path, node_readings=False), source)
    assert set(found["gpus"][0]["gaps"].values()) == {"error"}
    assert found["gpus"][0]["readings"] == {}


async def test_a_source_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = FakeSource(gpus=1)
    source.hung = True
    monkeypatch.setattr("collector.commands.once.LONGEST_DEADLINE", 0.1)
    found = await once(config_of(tmp_path, node_readings=False), source)
    assert set(found["gpus"][0]["gaps"].values()) == {"timed_out"}
