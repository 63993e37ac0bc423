"""The catalogue holds together: names, units, sources, help."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.build import SOURCES
from telemetry.catalogue import BY_NAME, CATALOGUE
from telemetry.catalogue.amd import AmdReader
from telemetry.catalogue.nvml import NvmlReader
from telemetry.catalogue.sysfs import HostReader
from telemetry.metric import Kind, Lane, Metric, Table, Unit
from telemetry.wire.schema import GPU_FAST, NODE_FAST, SCHEMA, Schema

UNIT_WORDS = {
    Unit.WATTS: "_watts",
    Unit.JOULES: "_joules",
    Unit.CELSIUS: "_celsius",
    Unit.HERTZ: "_hertz",
    Unit.BYTES: "_bytes",
    Unit.BYTES_PER_SECOND: "_bytes_per_second",
    Unit.SECONDS: "_seconds",
}

COLLECTOR = Path(__file__).resolve().parents[2] / "collector"
READERS = {"amd": AmdReader, "nvml": NvmlReader, "smi": str, "host": HostReader}
"""Type of the readers of each source."""


def name_of(metric: Metric) -> str:
    """For readable test ids."""
    return metric.name


@pytest.mark.parametrize("metric", CATALOGUE, ids=name_of)
def test_a_row_is_named_as_prometheus_names(metric: Metric) -> None:
    """Table first, unit last, counters end in _total, help is a sentence."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
    assert metric.name.startswith(f"{metric.table}_")
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    bare = metric.name.removesuffix("_total")
    assert bare.endswith(UNIT_WORDS.get(metric.unit, ""))
    assert metric.help.endswith(".")
    assert (metric.unit is Unit.STATE) == bool(metric.states)


@pytest.mark.parametrize("metric", CATALOGUE, ids=name_of)
def test_a_row_says_where_its_number_comes_from(metric: Metric) -> None:
    """Readers of a source that has a folder in `collector/`, or a sentence."""
    assert any(metric.sources.values()) or metric.origin
    for source, readers in metric.sources.items():
        assert (COLLECTOR / source).is_dir()
        assert all(isinstance(reader, READERS[source]) for reader in readers)
        assert metric.readers(source) == readers
    assert metric.readers("none") == ()


def test_every_source_has_a_column_in_the_docs() -> None:
    """A vendor whose readers are in the rows is in docs/metrics.md too."""
    assert set(SOURCES) == set(READERS) == {name for row in CATALOGUE for name in row.sources}


def test_names_are_unique_and_all_stand_in_the_schema() -> None:
    """One metric, one row, one column."""
    assert len(BY_NAME) == len(CATALOGUE)
    assert sorted(BY_NAME) == sorted(name for block in SCHEMA.blocks for name in block.names)


def test_the_fast_lane_has_what_must_be_seen_every_second() -> None:
    """Power, heat, load, clocks, throttle reasons, energy, the driver's advice."""
    fast = set(SCHEMA.blocks[GPU_FAST].names)
    assert {
        "gpu_power_watts",
        "gpu_temperature_celsius",
        "gpu_utilization_ratio",
        "gpu_sm_clock_hertz",
        "gpu_clocks_event_hw_thermal_slowdown",
        *(f"gpu_{bus}_{way}_bytes_per_second" for bus in ("pcie", "nvlink") for way in ("transmit", "receive")),
        "gpu_energy_joules_total",
        "gpu_recovery_action",
    } <= fast
    assert SCHEMA.index(Table.NODE, Lane.FAST) == NODE_FAST


def test_the_schema_id_depends_on_every_name_and_order() -> None:
    """Two releases with other columns never read each other's by position."""
    first = SCHEMA.blocks[0]
    turned = type(first)(first.table, first.lane, first.gauges[::-1], first.counters)
    assert Schema((turned, *SCHEMA.blocks[1:])).id != SCHEMA.id
    assert Schema(SCHEMA.blocks).id == SCHEMA.id
    assert SCHEMA.id < 2**53
