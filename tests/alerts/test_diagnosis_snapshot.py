"""From one document of nvidia-smi to incidents: states count, lifetime counters do not."""

from __future__ import annotations

import inspect
import re

import pytest

from alerts.diagnosis import snapshot
from alerts.diagnosis.finding import Finding
from alerts.diagnosis.merging import merge
from alerts.diagnosis.snapshot import GpuSnapshot, evaluate_snapshots
from alerts.xid.catalogue import XidSeverity
from telemetry.catalogue import BY_NAME


def gpu(pci: str = "0000:01:00.0", lost: str = "", links: str = "", **readings: float) -> GpuSnapshot:
    """One GPU; `links` is a + or - for each."""
    named = {f"gpu_{name}": value for name, value in readings.items()}
    return GpuSnapshot(pci, "H100", named, lost, [mark == "+" for mark in links])


def said(*gpus: GpuSnapshot) -> list[tuple[str, str]]:
    """Severity and fault of each incident."""
    return [(one.severity.value, one.fault) for one in evaluate_snapshots(gpus)]


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ({"recovery_action": 0}, []),
        ({"recovery_action": 1}, [("page", "recovery_action")]),
        ({"recovery_action": 2}, [("page", "recovery_action")]),
        ({"recovery_action": 3}, [("page", "recovery_action_p2p")]),
        ({"recovery_action": 4}, [("ticket", "recovery_drain")]),
        ({"recovery_action": 5}, [("page", "recovery_action_p2p")]),
        ({"recovery_action": 6}, [("page", "recovery_action")]),
        ({"recovery_action": 7}, [("page", "recovery_action")]),
        ({"remapped_rows_pending": 1}, [("ticket", "remap_pending")]),
        ({"remapped_rows_pending": 1, "retired_pages_pending": 1}, [("ticket", "remap_pending")]),
        ({"remapped_rows_failure": 1}, [("page", "ecc_uncontained")]),
        ({"ecc_sram_threshold_exceeded": 1}, [("page", "ecc_uncontained")]),
        ({"ecc_volatile_uncorrected_dram_total": 1}, [("ticket", "ecc_volatile")]),
        ({"ecc_volatile_corrected_total": 353, "ecc_aggregate_corrected_total": 10289}, []),
        ({"ecc_aggregate_uncorrected_total": 7, "retired_pages_double_bit": 1}, []),
        ({"remapped_rows_uncorrectable": 2, "remapped_rows_correctable": 8}, []),
        ({"remapped_rows_uncorrectable": 512}, [("ticket", "remap_exhausted")]),
        ({"temperature_celsius": 88, "temperature_slowdown_celsius": 89}, []),
        ({"temperature_celsius": 89, "temperature_slowdown_celsius": 89}, [("page", "thermal_hw")]),
        ({"thermal_margin_celsius": -4, "thermal_margin_slowdown_celsius": -5}, []),
        ({"thermal_margin_celsius": -5, "thermal_margin_slowdown_celsius": -5}, [("page", "thermal_hw")]),
        ({"thermal_margin_celsius": -9, "thermal_margin_slowdown_celsius": -5, "temperature_celsius": 31}, []),
        ({"clocks_event_hw_thermal_slowdown": 1}, [("ticket", "thermal_hw")]),
        ({"clocks_event_hw_power_brake_slowdown": 1}, [("ticket", "power_brake")]),
        ({"clocks_event_sw_power_cap": 1, "clocks_event_idle": 1, "clocks_event_sync_boost": 1,
          "clocks_event_applications_clocks_setting": 1, "clocks_event_sw_power_cap_seconds_total": 7015,
          "pcie_replays_total": 150, "pcie_link_width": 8, "pcie_link_width_max": 16}, []),
        ({"fabric_health": 1}, []),
        ({"fabric_health": 2}, [("ticket", "fabric")]),
        ({"fabric_state": 1}, [("ticket", "fabric_never")]),
        ({"fabric_state": 2, "fabric_health": 0}, [("ticket", "fabric_never")]),
        ({"fabric_state": 3, "fabric_status": 0, "fabric_configuration": 1}, []),
        ({"fabric_state": 3, "fabric_status": 10}, [("ticket", "fabric_setup")]),
        ({"fabric_state": 3, "fabric_configuration": 5}, [("ticket", "fabric_setup")]),
        ({"pcie_link_generation": 2, "pcie_link_generation_max": 5, "utilization_ratio": 1.0}, [("ticket", "pcie_slow")]),
        ({"pcie_link_generation": 1, "pcie_link_generation_max": 5, "utilization_ratio": 0.02}, []),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)  # fmt: skip
def test_what_a_state_is_worth(readings: dict[str, float], expected: list[tuple[str, str]]) -> None:
    """One GPU, one moment."""
    named = {f"gpu_{name}": value for name, value in readings.items()}
    assert said(GpuSnapshot("0000:01:00.0", "H100", named)) == expected


def test_every_state_is_a_metric_of_the_catalogue() -> None:
    """A misspelt name would never be bad."""
    source = inspect.getsource(snapshot)
    names = set(re.findall(r'"(gpu_[a-z0-9_]+)"', source)) - {"gpu_lost", "gpu_unread"}
    names |= {f"gpu_ecc_volatile_uncorrected{part}_total" for part in ("", "_dram", "_sram")}
    assert names <= set(BY_NAME)
    assert len(names) > 20


def test_a_lost_gpu_hides_no_other() -> None:
    """Each is evaluated by itself."""
    assert said(gpu(lost="GPU is lost"), gpu("0000:02:00.0", recovery_action=1)) == [
        ("page", "gpu_lost"),
        ("page", "recovery_action"),
    ]
    assert said(gpu(lost="GPU requires reset")) == [("page", "recovery_action")]


def test_the_power_brake_on_all_gpus_is_the_facility() -> None:
    """Case (c): one page about the node's power; on some GPUs only, a ticket each."""
    braked = [gpu(f"0000:0{n}:00.0", clocks_event_hw_power_brake_slowdown=1) for n in range(8)]
    (one,) = evaluate_snapshots(braked)
    assert (one.severity, one.fault, one.gpu, one.count) == ("page", "power_brake", None, 8)
    assert said(*braked[:2], gpu("0000:0a:00.0")) == [("ticket", "power_brake")] * 2


def test_links_are_judged_by_the_peers() -> None:
    """All down here and up there is a page; a link that no peer has up is no fault; MIG hides."""
    peer = gpu("0000:02:00.0", links="++++--")
    assert said(gpu(links="------"), peer) == [("page", "nvlink_down")]
    assert said(gpu(links="++-+--"), peer) == [("ticket", "nvlink_down")]
    assert said(gpu(links="++++--"), peer) == []
    assert said(gpu(links="------", mig_mode=1), peer) == []
    assert said(gpu(links="----"), gpu(links="----")) == []


def test_log_and_document_are_merged_by_cause() -> None:
    """The same lost GPU twice; a recovery action that belongs to a fault in the log."""
    log = Finding(severity=XidSeverity.TICKET, fault="nvlink_errors", gpu="0000:01:00.0", xids=[149])
    lost = Finding(severity=XidSeverity.PAGE, fault="gpu_lost", gpu="0000:02:00.0", xids=[79])
    found = evaluate_snapshots([gpu(recovery_action=1), gpu("0000:02:00.0", lost="GPU is lost")])
    merged = {one.fault: one for one in merge([log, lost], found)}
    assert set(merged) == {"nvlink_errors", "gpu_lost"}
    assert merged["nvlink_errors"].severity == "page"
    assert (merged["gpu_lost"].count, merged["gpu_lost"].xids) == (2, [79])
