"""The table of dcgm-exporter's names against its lists, what each name has on a node, and its file of counters."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from telemetry.catalogue import BY_NAME
from telemetry.devices import Gpu, Link, MigInstance
from telemetry.errors import ConfigError
from telemetry.gap import ERROR, NOT_SUPPORTED
from telemetry.metric import Kind, Table
from telemetry.wire.dcgm import (
    BESIDE,
    BY_CHOICE,
    COUNTERS,
    LABELS,
    LISTED,
    NOT_GIVEN,
    XID,
    CounterList,
    families,
    load_list,
    parse_list,
)
from telemetry.wire.inventory import Inventory

FACTS = Path(__file__).parents[2] / "../shared/data/dcgm_names.csv"
UNITS = {
    "": "", "MHz": "(in MHz)", "C": "(in C)", "W": "(in W)", "mJ": "(in mJ)", "KB": "(in KB)", "%": "(in %)",
    "MiB": "(in MiB)", "ratio": "(0 to 1)", "bytes/s": "Bytes a second",
    "us (default list), ns (profiling list)": "(in ns)",
}  # fmt: skip
"""Words of a help for the units of the lists. DCGM's own header has ns for the last, and so does NVML."""


def facts() -> list[dict[str, str]]:
    """The rows of both lists."""
    lines = [line for line in FACTS.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


@pytest.mark.skipif(not FACTS.exists(), reason="no ../shared/data/dcgm_names.csv")
def test_every_name_of_the_exporters_lists_is_given_or_has_a_reason() -> None:
    """With the exporter's type, and its unit in the help."""
    given = {counter.name: counter for counter in LISTED}
    reasons = {each.name for each in NOT_GIVEN if each.reason}
    rows = facts()
    assert len(rows) == 55
    for row in rows:
        name = row["name"]
        if row["type"] == "label":
            assert name in LABELS, name
            continue
        assert (name in given) != (name in reasons), name
        if name in given:
            assert given[name].kind == row["type"], name
            assert UNITS[row["unit"]] in given[name].help, name
    names = {row["name"] for row in rows}
    assert set(given) <= names, "what is in none of the lists is BESIDE"
    assert names - set(given) - set(LABELS) == {"DCGM_FI_DEV_VGPU_LICENSE_STATUS"}


def test_every_counter_is_made_of_metrics_of_the_catalogue() -> None:
    names = [counter.name for counter in COUNTERS]
    assert len(set(names)) == len(names)
    assert not set(names) & ({each.name for each in NOT_GIVEN} | set(LABELS))
    assert {name for each in NOT_GIVEN for name in each.metrics} <= set(BY_NAME)
    for counter in COUNTERS:
        terms = (*counter.terms, *counter.otherwise)
        assert bool(terms) == (counter.name != XID)
        assert {BY_NAME[metric].table for metric, _ in terms} <= {Table.GPU, Table.LINK}
        if any(BY_NAME[metric].kind is Kind.COUNTER for metric, _ in terms):
            assert counter.kind == "counter", counter.name
        if counter.of_instance:
            ours, its = BY_NAME[counter.terms[0][0]], BY_NAME[counter.of_instance]
            assert (its.table, its.unit) == (Table.INSTANCE, ours.unit), counter.name


UUID = "GPU-1"
NODE = Inventory(
    node="n1",
    driver_version="580.105.08",
    nvml_version="13.580.105.08",
    gpus=(
        Gpu(
            uuid=UUID,
            index=0,
            name="NVIDIA H100",
            pci="0000:1b:00.0",
            serial="165",
            vbios="96.00",
            brand="NVIDIA",
            inforom="G520",
        ),
        Gpu(uuid="GPU-2", index=1, name="NVIDIA H100", present=False),
    ),
    links=(Link(gpu="GPU-2", number=0), Link(gpu=UUID, number=0), Link(gpu=UUID, number=1)),
)


def columns(
    known: dict[str, Sequence[float]] | None = None, other: float = NOT_SUPPORTED
) -> Callable[[str], Sequence[float]]:
    """Readings of the node: those that are known, and another for all else."""
    sizes = {Table.GPU: len(NODE.gpus), Table.LINK: len(NODE.links), Table.INSTANCE: len(NODE.instances)}
    return lambda name: (known or {}).get(name, [other] * sizes[BY_NAME[name].table])


def shown(readings: Callable[[str], Sequence[float]], wanted: CounterList) -> dict[str, float]:
    """The only number of each family that has one."""
    found = {}
    for family in families(NODE, readings, wanted=wanted):
        values = [value for _, value in family.samples if not math.isnan(value)]
        if values:
            (found[family.name],) = values
    return found


ALL = CounterList(COUNTERS)


def test_units_are_converted_once() -> None:
    given: dict[str, Sequence[float]] = {
        "gpu_clocks_event_sw_power_cap_seconds_total": (7015.25, 1),
        "gpu_pcie_transmit_bytes_total": (987_654_321_000, 1),
        "gpu_pcie_transmit_bytes_per_second": (1500.0, 1),
        "gpu_energy_joules_total": (123.456, 1),
        "gpu_memory_total_bytes": (80 * 2**30, 1),
        "gpu_nvlink_transmit_bytes_total": (2**20, 1),
        "gpu_nvlink_receive_bytes_total": (3 * 2**20, 1),
        "gpu_fan_speed_ratio": (0.42, 1),
        "gpu_sm_occupancy_ratio": (0.4375, 1),
        **{f"gpu_clocks_event_{word}": (0, 1) for word in (
            "idle", "applications_clocks_setting", "hw_slowdown", "sync_boost", "hw_power_brake_slowdown",
            "display_clocks_setting",
        )},
        **{f"gpu_clocks_event_{word}": (1, 1) for word in ("sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown")},
    }  # fmt: skip
    assert shown(columns(given), ALL) == {
        "DCGM_FI_DEV_POWER_VIOLATION": 7_015_250_000_000,
        "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS": 7_015_250_000_000,
        "DCGM_FI_DEV_PCIE_TX_THROUGHPUT": 987_654_321,
        "DCGM_FI_PROF_PCIE_TX_BYTES": 1500,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 123_456,
        "DCGM_FI_DEV_FB_TOTAL": 81_920,
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 4096,
        "DCGM_FI_DEV_FAN_SPEED": 42,
        "DCGM_FI_PROF_SM_OCCUPANCY": 0.4375,
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 0x64,
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 0x64,
    }


def test_what_grace_and_blackwell_have_is_there_by_choice() -> None:
    """Names and units of DCGM's own header."""
    given: dict[str, Sequence[float]] = {
        "gpu_c2c_links": (10, 1), "gpu_c2c_crc_errors_total": (3, 1), "gpu_c2c_replays_total": (4, 1),
        "gpu_c2c_replays_back_to_back_total": (5, 1), "gpu_c2c_transmit_bytes_per_second": (1500, 1),
        "gpu_c2c_transmit_data_bytes_per_second": (1400, 1), "gpu_c2c_receive_bytes_per_second": (2500, 1),
        "gpu_c2c_receive_data_bytes_per_second": (2400, 1), "gpu_tensor_hmma_active_ratio": (0.43, 1),
        "gpu_tensor_imma_active_ratio": (0.01, 1), "gpu_tensor_dfma_active_ratio": (0.0, 1),
        "gpu_power_smoothing_enabled": (1, 1), "gpu_power_smoothing_ceiling_watts": (1300, 1),
        "gpu_power_smoothing_floor_watts": (450, 1), "gpu_power_smoothing_lifetime_ratio": (0.97, 1),
        "gpu_power_smoothing_profile": (2, 1), "gpu_pcie_correctable_errors_total": (6, 1),
        "link_fec_last_bin_total": (9, 1, 2), "gpu_c2c_links_active": (9, 1),
    }  # fmt: skip
    assert shown(columns(given), ALL) == {
        "DCGM_FI_DEV_C2C_LINK_COUNT": 10,
        "DCGM_FI_DEV_C2C_LINK_ERROR_INTR": 3,
        "DCGM_FI_DEV_C2C_LINK_ERROR_REPLAY": 4,
        "DCGM_FI_DEV_C2C_LINK_ERROR_REPLAY_B2B": 5,
        "DCGM_FI_PROF_C2C_TX_ALL_BYTES": 1500,
        "DCGM_FI_PROF_C2C_TX_DATA_BYTES": 1400,
        "DCGM_FI_PROF_C2C_RX_ALL_BYTES": 2500,
        "DCGM_FI_PROF_C2C_RX_DATA_BYTES": 2400,
        "DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE": 0.43,
        "DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE": 0.01,
        "DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE": 0,
        "DCGM_FI_DEV_PWR_SMOOTHING_ENABLED": 1,
        "DCGM_FI_DEV_PWR_SMOOTHING_APPLIED_TMP_CEIL": 1300,
        "DCGM_FI_DEV_PWR_SMOOTHING_APPLIED_TMP_FLOOR": 450,
        "DCGM_FI_DEV_PWR_SMOOTHING_HW_CIRCUITRY_PERCENT_LIFETIME_REMAINING": 97,
        "DCGM_FI_DEV_PWR_SMOOTHING_ACTIVE_PRESET_PROFILE": 2,
        "DCGM_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS": 6,
        "DCGM_FI_DEV_NVLINK_COUNT_FEC_HISTORY_15": 3,
    }
    assert not shown(columns({}), ALL), "a board that lacks them has none of them"


def test_each_link_has_names_of_its_own() -> None:
    """By its number, not its row; a link that the GPU lacks has none."""
    given: dict[str, Sequence[float]] = {
        "link_transmit_bytes_per_second": (7, 10, 11),
        "link_receive_bytes_per_second": (8, 20, ERROR),
    }
    assert shown(columns(given), ALL) == {
        "DCGM_FI_PROF_NVLINK_L0_TX_BYTES": 10,
        "DCGM_FI_PROF_NVLINK_L0_RX_BYTES": 20,
        "DCGM_FI_PROF_NVLINK_L1_TX_BYTES": 11,
    }
    wanted = parse_list("DCGM_FI_PROF_NVLINK_L17_RX_BYTES, gauge, of a link\n", "counters.csv")
    assert not wanted.missing
    assert [each.link for each in wanted.counters] == [17]
    of_each = [each for each in COUNTERS if each.link is not None]
    assert {each.name for each in of_each} == {
        f"DCGM_FI_PROF_NVLINK_L{link}_{way}_BYTES" for link in range(18) for way in ("TX", "RX")
    }


def test_links_are_added_up_as_a_counter_may_be() -> None:
    """A link that never has the reading is left out; one that lacks it now leaves no sum."""
    name = "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"
    for links, total in (
        ((100, 3, 4), 7.0),
        ((100, 3, NOT_SUPPORTED), 3.0),
        ((100, 3, ERROR), None),
        ((100, NOT_SUPPORTED, NOT_SUPPORTED), None),
    ):
        assert shown(columns({"link_replays_total": links}), ALL).get(name) == total


def test_bandwidth_of_links_stands_in_where_a_gpu_has_no_sum() -> None:
    """A sum that is not there at the moment is a gap: the links' may be another number."""
    links: dict[str, Sequence[float]] = {
        "link_transmit_bytes_total": (1, 1024, 1024),
        "link_receive_bytes_total": (1, 2048, 0),
    }
    name = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
    assert shown(columns(links), ALL)[name] == 4
    assert name not in shown(columns({**links, "gpu_nvlink_transmit_bytes_total": (ERROR, 1)}), ALL)


def test_a_gpu_that_is_gone_has_no_series() -> None:
    found = list(families(NODE, columns(other=1.0), xids={}))
    assert {len(family.samples) for family in found} == {1}
    assert len(found) == len(LISTED) + len(BESIDE)


def test_an_instance_stands_in_place_of_its_gpu() -> None:
    """Also on the readings of activity that boards of MIG ask for."""
    part = MigInstance(uuid="MIG-1", gpu=UUID, gpu_instance=7, profile="1g.10gb")
    node = Inventory(node="n1", gpus=NODE.gpus[:1], instances=(part,))
    found = {family.name: family.samples for family in families(node, lambda _: [0.5], wanted=ALL)}
    split = {name for name, samples in found.items() if 'GPU_I_ID="7"' in samples[0][0]}
    assert split == {
        "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE",
        "DCGM_FI_PROF_SM_OCCUPANCY", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE",
        "DCGM_FI_PROF_PIPE_FP64_ACTIVE", "DCGM_FI_PROF_PIPE_FP32_ACTIVE", "DCGM_FI_PROF_PIPE_FP16_ACTIVE",
    }  # fmt: skip


FILE = """\
# Format: DCGM FIELD, Prometheus metric type, help message

DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).
   # DCGM_FI_DEV_MEMORY_TEMP, gauge, left out
DCGM_FI_DEV_PCIE_LINK_GEN,gauge,"Generation, in use."
DCGM_FI_DEV_GPU_UTIL, counter,
DCGM_FI_DEV_SERIAL, label, Serial number
DCGM_FI_NVML_VERSION, label, NVML
DCGM_FI_DEV_VGPU_LICENSE_STATUS, gauge, vGPU license
DCGM_FI_DEV_CPU_UTIL_TOTAL, gauge, CPU
DCGM_FI_DEV_XYZ, gauge, new
DCGM_FI_DEV_BRAND, gauge, brand
DCGM_FI_DEV_FAN_SPEED, label, fan
"""


def test_the_exporters_file_chooses_names_types_helps_and_labels(tmp_path: Path) -> None:
    path = tmp_path / "counters.csv"
    path.write_text(f"\ufeff{FILE}")
    wanted = load_list("aggregator.dcgm_counters", path)
    assert [(each.name, each.kind, each.help) for each in wanted.counters] == [
        ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C)."),
        ("DCGM_FI_DEV_PCIE_LINK_GEN", "gauge", "Generation, in use."),
        ("DCGM_FI_DEV_GPU_UTIL", "counter", "GPU utilization (in %)."),
    ]
    found = list(families(NODE, columns(other=1.0), wanted=wanted))
    (fragment, value) = found[2].samples[0]
    assert value == 100
    assert fragment.endswith(',Hostname="n1",DCGM_FI_DEV_SERIAL="165",DCGM_FI_NVML_VERSION="13.580.105.08"}')
    assert [line.removeprefix(f"{path}:") for line in wanted.missing] == [
        "9: DCGM_FI_DEV_VGPU_LICENSE_STATUS is not served: the licence of a virtual GPU's guest, always 0 on a node that "
        "has its GPUs itself",
        "10: DCGM_FI_DEV_CPU_UTIL_TOTAL is not served: of the node, as a ratio; DCGM has it on Grace alone "
        "(node_cpu_utilization_ratio)",
        "11: DCGM_FI_DEV_XYZ is not served: kilowatch reads nothing that equals it",
        "12: DCGM_FI_DEV_BRAND is not served: it is a text: write label as its type",
        "13: DCGM_FI_DEV_FAN_SPEED is not served: as a label a reading would begin new series with each change: write "
        "gauge or counter as its type",
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("DCGM_FI_DEV_GPU_TEMP, gauge", "2 columns where there should be three"),
        ("DCGM_FI_DEV_GPU_TEMP gauge a", "1 column where there should be three"),
        ("DCGM_FI_DEV_GPU_TEMP, gauge, a, b", "4 columns where there should be three"),
        ("DCGM_FI_DEV_GPU_TEMP, Gauge, a", "'Gauge' is no type"),
        ("gpu_temp, gauge, a", "'gpu_temp' is no field of DCGM"),
        ("DCGM_FI_DEV_SM_CLOCK, gauge, again", "DCGM_FI_DEV_SM_CLOCK is there twice"),
        ("DCGM_FI_DEV_SERIAL, label, again", "DCGM_FI_DEV_SERIAL is there twice"),
        ('DCGM_FI_DEV_GPU_TEMP, gauge, "a', ""),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(line: str, problem: str) -> None:
    head = "# a comment\nDCGM_FI_DEV_SM_CLOCK, gauge, a\nDCGM_FI_DEV_SERIAL, label, a\n"
    if not problem:  # a quote that is not closed ends with its line
        assert len(parse_list(f"{head}{line}\n", "c.csv").counters) == 2
        return
    with pytest.raises(ConfigError) as caught:
        parse_list(f"{head}{line}\n", "/etc/c.csv")
    assert (caught.value.where, caught.value.problem) == ("/etc/c.csv:4", problem)


def test_a_file_of_bytes_is_no_file_of_counters(tmp_path: Path) -> None:
    (tmp_path / "counters.csv").write_bytes(b"\x7fELF\xff\x00")
    with pytest.raises(ConfigError, match=r"counters\.csv is no text"):
        load_list("aggregator.dcgm_counters", tmp_path / "counters.csv")


def test_a_file_that_is_not_there_is_named_by_its_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file") as caught:
        load_list("aggregator.dcgm_counters", tmp_path / "none.csv")
    assert caught.value.where == "aggregator.dcgm_counters"


def test_what_is_by_choice_is_not_there_unasked() -> None:
    assert not {each.name for each in BY_CHOICE} & {each.name for each in CounterList().counters}
    assert len(BY_CHOICE) > 60
