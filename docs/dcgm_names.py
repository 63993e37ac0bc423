"""docs/dcgm.md: what the readings of dcgm-exporter and DCGM are called here."""

from __future__ import annotations

from typing import NamedTuple

from aggregator.http.dcgm import COUNTERS, XID
from telemetry.catalogue import BY_NAME
from telemetry.metric import Table


class DcgmName(NamedTuple):
    """A field of DCGM that the page with dcgm-exporter's names does not serve, and what is read in its place."""

    name: str
    metrics: tuple[str, ...]
    """Metrics of the catalogue."""
    difference: str = ""


NOT_SERVED = (
    DcgmName("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", ("link_transmit_bytes_total", "link_receive_bytes_total"), "of each link, in bytes; DCGM's unit differs by release"),
    DcgmName("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", ("link_crc_errors_total",), "of each link"),
    DcgmName("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", ("link_replays_total",), "of each link"),
    DcgmName("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", ("link_recoveries_total",), "of each link"),
    DcgmName("DCGM_FI_PROF_PCIE_TX_BYTES", ("gpu_pcie_transmit_bytes_total",), "a counter; take its rate"),
    DcgmName("DCGM_FI_PROF_PCIE_RX_BYTES", ("gpu_pcie_receive_bytes_total",), "a counter; take its rate"),
    DcgmName("DCGM_FI_DEV_POWER_VIOLATION", ("gpu_clocks_event_sw_power_cap_seconds_total",), "seconds, of NVML's own counter"),
    DcgmName("DCGM_FI_DEV_THERMAL_VIOLATION", ("gpu_clocks_event_sw_thermal_slowdown_seconds_total", "gpu_clocks_event_hw_thermal_slowdown_seconds_total"), "seconds, by cause"),
    DcgmName("DCGM_FI_DEV_CPU_UTIL_TOTAL", ("node_cpu_utilization_ratio",), "of the node, as a ratio; DCGM has it on Grace alone"),
    DcgmName("DCGM_FI_DEV_CPU_TEMP_CURRENT", ("node_cpu_temperature_celsius",), "the hottest CPU"),
    DcgmName("DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS", (), "SXids are statements of the kernel log, and alerts"),
    DcgmName("DCGM_FI_DEV_CONNECTX_HEALTH", ("port_state", "port_physical_state"), "states of each port; what is wrong with it is a rule"),
    DcgmName("DCGM_FI_DEV_CONNECTX_ACTIVE_PCIE_LINK_WIDTH", ("port_pcie_link_width",)),
    DcgmName("DCGM_FI_DEV_CONNECTX_ACTIVE_PCIE_LINK_SPEED", ("port_pcie_link_generation",), "as a generation"),
    DcgmName("DCGM_FI_DEV_CONNECTX_EXPECT_PCIE_LINK_WIDTH", ("port_pcie_link_width_possible",), "what adapter and slot both have"),
    DcgmName("DCGM_FI_DEV_CONNECTX_EXPECT_PCIE_LINK_SPEED", ("port_pcie_link_generation_possible",), "what adapter and slot both have"),
    DcgmName("DCGM_FI_DEV_CONNECTX_CORRECTABLE_ERR_STATUS", ("port_pcie_correctable_errors_total",), "a count, not a register"),
    DcgmName("DCGM_FI_DEV_CONNECTX_UNCORRECTABLE_ERR_STATUS", ("port_pcie_uncorrectable_errors_total",), "a count, not a register"),
    DcgmName("DCGM_FI_DEV_CONNECTX_DEVICE_TEMPERATURE", ("port_temperature_celsius",)),
)  # fmt: skip


def _scale(scale: float) -> str:
    """Return what a metric is multiplied by."""
    if scale == 1:
        return ""
    return f"{scale:g}" if scale > 1 else f"1 / {1 / scale:,.0f}"


def dcgm_page() -> str:
    """Return docs/dcgm.md."""
    ports = sum(metric.table is Table.PORT for metric in BY_NAME.values())
    lines = [
        "# From dcgm-exporter",
        "",
        "Generated from the rows of `/metrics/dcgm` and of `docs/dcgm_names.py` by `make docs`; do not edit.",
        "",
        "Dashboards and rules that you have for dcgm-exporter go on working, unchanged: have Prometheus discover the targets of",
        "`/sd/dcgm`, which are the aggregator's pages `/metrics/dcgm/NODE`. Names, units and labels are the exporter's;",
        "`?host_label=hostname` writes the label as it does since release 4.8.2. AMD's GPUs are under the same names. No DCGM runs, and",
        "a reading that a GPU does not have is absent, never 0 or 9223372036854775794. `?job_labels=yes` (in `params` of the scrape job)",
        "adds `hpc_job`, or `pod`, `namespace` and `container`, of the only job on a GPU: each job then begins some dozen series a GPU.",
        "",
        "    - job_name: dcgm",
        '      http_sd_configs: [{url: "http://127.0.0.1:9400/sd/dcgm"}]',
        "",
        "For new dashboards take the metrics of [the catalogue](metrics.md), on `/metrics/node/NODE`: base units, all there is, and",
        "`kilowatch_` before each name.",
        "",
        "## Served under both names",
        "",
        "| dcgm-exporter | kilowatch | times |",
        "| --- | --- | ---: |",
        *(
            f"| `{each.name}` | `{each.metric}`{f', of a MIG instance `{each.of_instance}`' if each.of_instance else ''} "
            f"| {_scale(each.scale)} |"
            for each in COUNTERS
        ),
        f'| `{XID}` | `kilowatch_event_timestamp_seconds{{kind="xid"}}`: every XID with its time, not the last alone | |',
        "",
        "## Under kilowatch's name only",
        "",
        "dcgm-exporter serves GPUs, NVLinks, NVSwitches and CPUs. **Of network adapters it serves nothing**: DCGM itself has fields of a",
        "ConnectX beside an NVSwitch, which the exporter does not watch: no dashboard of its asks for them, and there are no",
        f"labels to keep to. Ports are here with {ports} metrics of their own ([metrics](metrics.md#port-{ports})), labelled `port`.",
        "",
        "| DCGM | kilowatch | difference |",
        "| --- | --- | --- |",
        *(
            f"| `{each.name}` | {', '.join(f'`{name}`' for name in each.metrics)} | {each.difference} |"
            for each in NOT_SERVED
        ),
    ]
    return "\n".join(lines) + "\n"
