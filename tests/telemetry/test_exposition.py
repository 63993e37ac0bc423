"""The text page of one node: short numbers, no gaps, clean by promtool."""

from __future__ import annotations

import math
import shutil
import struct
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from telemetry.devices import Gpu, Link, MigInstance, Port
from telemetry.gap import DEVICE_LOST, NOT_SUPPORTED
from telemetry.metric import Table
from telemetry.wire.exposition import COUNTER, GAUGE, SUMMARY, Family, labels, node_families, number, number32, render
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import GPU_FAST, SCHEMA


def lab() -> Inventory:
    """Two GPUs; the second is gone."""
    return Inventory(
        node="n1",
        cluster="lab",
        kilowatch="2026.1",
        source="nvml",
        driver_version="595.10",
        driver_state="up",
        gpus=(
            Gpu(uuid="GPU-a", index=0, name='NVIDIA "H100"\\', pci="0000:18:00.0", serial="1"),
            Gpu(uuid="GPU-b", index=1, name="NVIDIA H100", present=False),
        ),
        links=(Link(gpu="GPU-a", number=3, peer_kind="gpu", peer="GPU-b"),),
        ports=(Port(id="port:n1:0000:19:00.0/1", adapter="mlx5_0", number=1),),
        instances=(MigInstance(uuid="MIG-1", gpu="GPU-a", gpu_instance=7, profile="1g.10gb"),),
    )


def rows(value: float = 1.5) -> dict[int, list[list[float]]]:
    """Every metric of every block; the second GPU is lost."""
    counts = {Table.GPU: 2, Table.LINK: 1, Table.NODE: 1, Table.PORT: 1, Table.INSTANCE: 1}
    blocks = {
        place: [[value] * len(block.names) for _ in range(counts[block.table])]
        for place, block in enumerate(SCHEMA.blocks)
    }
    for place, block in enumerate(SCHEMA.blocks):
        if block.table is Table.GPU:
            blocks[place][1] = [DEVICE_LOST] * len(block.names)
    return blocks


def parsed(page: bytes) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Read a page with Prometheus' own parser."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_a_reading_is_a_series_with_the_labels_of_its_device() -> None:
    """GPU rows name the GPU, link rows the link, node rows the node alone."""
    page = parsed(render(node_families(lab(), rows())))
    node = (("cluster", "lab"), ("node", "n1"))
    gpu = (("cluster", "lab"), ("gpu", "0"), ("node", "n1"), ("uuid", "GPU-a"))
    assert page["kilowatch_gpu_power_watts"] == {gpu: 1.5}
    assert page["kilowatch_node_load_1m"] == {node: 1.5}
    (link,) = page["kilowatch_link_state"]
    assert dict(link) == {"cluster": "lab", "node": "n1", "gpu": "0", "uuid": "GPU-a", "link": "3"}


def test_what_is_absent_is_left_out_and_a_gpu_that_is_gone_is_told_apart() -> None:
    """No NaN, no zero, no series of the GPU that is gone, but gpu_present 0."""
    readings = rows()
    fan = SCHEMA.blocks[GPU_FAST].names.index("gpu_memory_temperature_celsius")
    readings[GPU_FAST][0][fan] = NOT_SUPPORTED
    text = render(node_families(lab(), readings)).decode()
    assert "NaN" not in text
    assert "nan" not in text
    assert "gpu_memory_temperature_celsius" not in text
    with_b = [line for line in text.splitlines() if 'uuid="GPU-b"' in line]
    assert [line.split("{")[0] for line in with_b] == ["kilowatch_gpu_present"]
    assert with_b[0].endswith(" 0")


def test_facts_about_a_gpu_are_labels_and_survive_odd_characters() -> None:
    """Quotes and backslashes are escaped, and come back."""
    page = parsed(render(node_families(lab(), rows())))
    (facts,) = page["kilowatch_gpu_info"]
    assert dict(facts)["name"] == 'NVIDIA "H100"\\'
    assert dict(facts)["driver"] == "595.10"
    assert "vbios" not in dict(facts)  # not known


def test_a_node_that_is_not_up_says_only_so() -> None:
    """So that Prometheus ends all its other series."""
    page = parsed(render(node_families(lab(), rows(), up=False, last_frame=1.79e9)))
    assert {name: list(series.values()) for name, series in page.items()} == {
        "kilowatch_node_up": [0.0],
        "kilowatch_node_last_frame_timestamp_seconds": [1.79e9],
    }


def test_without_scope_the_scrape_target_brings_cluster_and_node() -> None:
    """Else Prometheus would rename them to exported_cluster and exported_node."""
    text = render(node_families(lab(), rows(), scope=False)).decode()
    assert "cluster=" not in text
    assert "node=" not in text
    assert "\nkilowatch_node_up 1\n" in text
    assert 'kilowatch_gpu_power_watts{gpu="0",uuid="GPU-a"} 1.5\n' in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (67.02999877929688, "67.03"),
        (0.67, "0.67"),
        (85520809984.0, "85520809984"),
        (0.0, "0"),
        (3, "3"),
        (-3.5, "-3.5"),
        (1e-15, "1e-15"),
        (1e300, "1" + "0" * 300),
    ],
)
def test_a_gauge_is_written_as_short_as_a_float32_allows(value: float, text: str) -> None:
    """Whole numbers in full."""
    got = number32(value)
    assert float(got) == float(text)
    if len(text) < 20:
        assert got == text


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_short_gauge_reads_back_as_the_same_float32(value: float) -> None:
    """And has no more than 6 digits, or than NumPy needs; a whole number is exact."""
    text = number32(value)
    if value.is_integer():
        assert float(text) == value
    else:
        assert struct.pack("<f", float(text)) == struct.pack("<f", value)
        assert digits(text) <= max(6, digits(str(np.float32(value))))


def digits(text: str) -> int:
    """How many significant digits a number is written with."""
    mantissa = text.lower().lstrip("-").partition("e")[0].replace(".", "").lstrip("0")
    return len(mantissa.rstrip("0"))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_counter_reads_back_exactly(value: float) -> None:
    """A float64 in, the same float64 out."""
    assert float(number(value)) == value


def test_a_family_without_samples_is_left_out_and_infinity_is_written_as_prometheus_reads_it() -> None:
    """HELP and TYPE stand once, over their samples."""
    families = [
        Family("kilowatch_a", "Two\nlines.", GAUGE, [("", math.nan)]),
        Family("kilowatch_b", "Two\nlines.", GAUGE, [("", math.inf)]),
        Family("kilowatch_c_total", "C.", COUNTER, [(labels({"x": "1", "y": None}), 2.0)]),
        Family("kilowatch_d_seconds", "D.", SUMMARY, [("_count", 2.0), ("_sum", 0.5)]),
    ]
    assert render(families).decode() == (
        "# HELP kilowatch_b Two\\nlines.\n# TYPE kilowatch_b gauge\nkilowatch_b +Inf\n"
        '# HELP kilowatch_c_total C.\n# TYPE kilowatch_c_total counter\nkilowatch_c_total{x="1"} 2\n'
        "# HELP kilowatch_d_seconds D.\n# TYPE kilowatch_d_seconds summary\n"
        "kilowatch_d_seconds_count 2\nkilowatch_d_seconds_sum 0.5\n"
    )


@pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")
def test_promtool_finds_nothing_to_say_about_any_metric_of_the_catalogue() -> None:
    """Names, units, HELP and TYPE by Prometheus' conventions."""
    page = render(node_families(lab(), rows(), last_frame=1.79e9))
    for metric in (name for block in SCHEMA.blocks for name in block.names):
        assert f"# TYPE kilowatch_{metric} ".encode() in page
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
