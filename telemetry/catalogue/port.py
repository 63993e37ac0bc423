"""Port rows: InfiniBand, RoCE and Ethernet ports of the node's network adapters, and bonds of these, from sysfs
and by the statistics that `ethtool -S` shows.

All are of the slow lane: the adapter's firmware is asked for each file. A port that goes down between
two readings shows in the counter of falls.
"""

from __future__ import annotations

from telemetry.catalogue.sysfs import DeviceFile, HostReader, InterfaceFile, PortFile, Statistic
from telemetry.metric import Kind, Lane, Metric, Table, Unit

_SELF = "the collector itself"
_WORDS = 4.0
"""Bytes of a word, in which InfiniBand counts data."""


def _gauge(
    word: str,
    unit: Unit,
    text: str,
    *files: HostReader,
    states: tuple[tuple[int, str], ...] = (),
    origin: str = "",
    span: tuple[float, float] | None = None,
) -> Metric:
    return Metric(
        name=f"port_{word}",
        unit=unit,
        table=Table.PORT,
        lane=Lane.SLOW,
        help=text,
        states=states,
        sources={"host": files} if files else {},
        origin=origin,
        span=span,
    )


def _count(word: str, text: str, *files: HostReader, unit: Unit = Unit.COUNT, is_fault: bool = False) -> Metric:
    return Metric(
        name=f"port_{word}_total",
        unit=unit,
        kind=Kind.COUNTER,
        table=Table.PORT,
        lane=Lane.SLOW,
        help=text,
        sources={"host": files},
        is_fault=is_fault,
    )


def _hardware(word: str, text: str, *names: str) -> Metric:
    return _count(word, text, *(PortFile(f"hw_counters/{name}") for name in names))


METRICS = (
    _gauge(
        "state",
        Unit.STATE,
        "Logical state of the port; between the link and active a subnet manager sets it up. Of Ethernet the "
        "state of the interface: up is active.",
        PortFile("state"), InterfaceFile("operstate"),
        states=((0, "no change"), (1, "down"), (2, "initialising"), (3, "armed"), (4, "active"),
         (5, "active, deferred")),
    ),
    _gauge(
        "physical_state",
        Unit.STATE,
        "State of the link itself.",
        PortFile("phys_state"),
        states=((1, "sleep"), (2, "polling"), (3, "disabled"), (4, "training"), (5, "link up"),
         (6, "error recovery"), (7, "test")),
    ),
    _gauge(
        "speed_bytes_per_second",
        Unit.BYTES_PER_SECOND,
        "Speed in one direction, without what the encoding takes. Read while the port is active only: "
        "the kernel names a low speed for a port that is down.",
        PortFile("rate"), InterfaceFile("speed"),
    ),
    _gauge("width", Unit.COUNT, "Lanes in use; read while the port is active only.", PortFile("rate")),
    _gauge(
        "speed_usual_bytes_per_second",
        Unit.BYTES_PER_SECOND,
        "Speed that most of the node's active ports of the same kind have: the same adapter and link "
        "layer. Absent where fewer than three of them agree.",
        origin=_SELF,
    ),
    _gauge(
        "role",
        Unit.STATE,
        "What the port is for: `collector.port_roles`, else found by the PCI Express switch that it shares with a "
        "GPU, by the bond that it belongs to and by the default route.",
        states=((0, "unknown"), (1, "compute"), (2, "storage"), (3, "management"), (4, "member of a bond")),
        origin=_SELF,
    ),
    _gauge(
        "pcie_link_width", Unit.COUNT, "PCI Express lanes between the adapter and the node.",
        DeviceFile("current_link_width"), span=(0, 16),
    ),
    _gauge(
        "pcie_link_width_possible", Unit.COUNT,
        "Lanes that both the adapter and its slot have.",
        DeviceFile("max_link_width"), span=(0, 16),
    ),
    _gauge(
        "pcie_link_generation", Unit.COUNT, "Generation at which the PCI Express link runs.",
        DeviceFile("current_link_speed"), span=(0, 7),
    ),
    _gauge(
        "pcie_link_generation_possible", Unit.COUNT,
        "Highest generation of both the adapter and its slot.",
        DeviceFile("max_link_speed"), span=(0, 7),
    ),
    _gauge(
        "temperature_celsius", Unit.CELSIUS, "Temperature of the adapter.",
        DeviceFile("hwmon/hwmon*/temp*_input"), span=(-20, 130),
    ),
    _gauge(
        "module_temperature_celsius", Unit.CELSIUS, "Temperature of the optical module, where it has a sensor.",
        DeviceFile("hwmon/hwmon*/temp*_input"), span=(-20, 130),
    ),
    _gauge(
        "raw_ber", Unit.RATIO,
        "Share of the bits that arrived wrong and were corrected, since the reading before: corrected bits by the "
        "bits of the link.",
        Statistic("rx_corrected_bits_phy"),
    ),
    _gauge(
        "raw_ber_limit", Unit.RATIO,
        "Share above which NVIDIA's own tool for fabrics takes a port of this rate out of use; for optics, which "
        "may have more than copper.",
        origin="Mellanox ufm_sdk_3.0, pdr_deterministic_plugin, Field_BER_Thresholds V06",
    ),
    _gauge(
        "rail_ratio", Unit.RATIO,
        "Bytes sent since the reading before, by the median of the node's compute ports. Read while most of these "
        "send alike, and this port sends too.",
        origin=_SELF, span=(0, 1.5),
    ),
    _count(
        "receive_bytes", "Bytes received.",
        PortFile("counters/port_rcv_data", _WORDS), PortFile("hw_counters/rx_bytes"),
        PortFile("hw_counters/rx_rdma_ucast_bytes"), InterfaceFile("statistics/rx_bytes"), unit=Unit.BYTES,
    ),
    _count(
        "transmit_bytes", "Bytes sent.",
        PortFile("counters/port_xmit_data", _WORDS), PortFile("hw_counters/tx_bytes"),
        PortFile("hw_counters/tx_rdma_ucast_bytes"), InterfaceFile("statistics/tx_bytes"), unit=Unit.BYTES,
    ),
    _count(
        "receive_packets", "Packets received.",
        PortFile("counters/port_rcv_packets"), PortFile("hw_counters/rx_pkts"),
        InterfaceFile("statistics/rx_packets"),
    ),
    _count(
        "transmit_packets", "Packets sent.",
        PortFile("counters/port_xmit_packets"), PortFile("hw_counters/tx_pkts"),
        InterfaceFile("statistics/tx_packets"),
    ),
    _count(
        "link_downs", "Number of times that the link went down, a restart of the far end included.",
        InterfaceFile("carrier_down_count"), PortFile("counters/link_downed", bits=8),
    ),
    _count(
        "link_recoveries", "Number of times that the link was trained again without going down.",
        PortFile("counters/link_error_recovery", bits=8), is_fault=True,
    ),
    _count(
        "symbol_errors", "Bit errors that the correction left.",
        Statistic("rx_pcs_symbol_err_phy"), PortFile("counters/symbol_error", bits=16), is_fault=True,
    ),
    _count(
        "integrity_errors", "Number of times that the local errors exceeded the port's threshold.",
        PortFile("counters/local_link_integrity_errors", bits=4), is_fault=True,
    ),
    _count(
        "buffer_overruns", "Number of times that the far end sent more than it had leave to.",
        PortFile("counters/excessive_buffer_overrun_errors", bits=4), is_fault=True,
    ),
    _count(
        "receive_errors", "Packets received with an error: checksum, form, buffer.",
        InterfaceFile("statistics/rx_crc_errors"), PortFile("counters/port_rcv_errors", bits=16), is_fault=True,
    ),
    _count(
        "remote_errors",
        "Packets that were marked bad on their way: another link is at fault, not this one.",
        PortFile("counters/port_rcv_remote_physical_errors", bits=16),
    ),
    _count(
        "relay_errors", "Packets that could not be passed on: a matter of routes.",
        PortFile("counters/port_rcv_switch_relay_errors", bits=16),
    ),
    _count(
        "receive_constraint_errors", "Packets refused on receiving, by their partition.",
        PortFile("counters/port_rcv_constraint_errors", bits=8),
    ),
    _count(
        "transmit_constraint_errors", "Packets refused on sending, by their partition.",
        PortFile("counters/port_xmit_constraint_errors", bits=8),
    ),
    _count(
        "transmit_discards", "Packets thrown away before sending: the far end is down or takes nothing.",
        Statistic("tx_discards_phy"), PortFile("counters/port_xmit_discards", bits=16),
    ),
    _count(
        "receive_discards", "Packets thrown away on arrival, because the adapter's buffers were full.",
        Statistic("rx_discards_phy"), InterfaceFile("statistics/rx_missed_errors"),
    ),
    _count(
        "corrected_errors", "Bits that arrived wrong and were corrected (FEC).",
        Statistic("rx_corrected_bits_phy"),
    ),
    _count(
        "receive_pause_frames", "Requests of the switch to stop sending, all priorities.",
        Statistic("rx_prio[0-7]_pause"), Statistic("rx_global_pause"), Statistic("rx_pause_frames"),
    ),
    _count(
        "transmit_pause_frames", "Requests to the switch to stop sending: this node is too slow to receive.",
        Statistic("tx_prio[0-7]_pause"), Statistic("tx_global_pause"), Statistic("tx_pause_frames"),
    ),
    _count(
        "pause_seconds", "Time in which the switch had stopped this port, all priorities added.",
        Statistic("rx_prio[0-7]_pause_duration", 1e-6), Statistic("rx_global_pause_duration", 1e-6),
        unit=Unit.SECONDS,
    ),
    _count(
        "pcie_correctable_errors", "PCI Express errors of the adapter that the hardware corrected (AER).",
        DeviceFile("aer_dev_correctable"),
    ),
    _count(
        "pcie_uncorrectable_errors", "PCI Express errors of the adapter that were not corrected (AER).",
        DeviceFile("aer_dev_nonfatal"), DeviceFile("aer_dev_fatal"), is_fault=True,
    ),
    _count(
        "transmit_waits",
        "Ticks of the port's clock in which data waited for leave to be sent. Full within hours on a "
        "busy fabric.",
        PortFile("counters/port_xmit_wait", bits=32),
    ),
    _count(
        "management_drops", "Management packets dropped; some at each sweep of a subnet manager.",
        PortFile("counters/VL15_dropped", bits=16),
    ),
    _hardware("sequence_errors", "Refusals received: the far end missed a packet.", "packet_seq_err"),
    _hardware(
        "implied_sequence_errors", "Answers that skipped a packet.", "implied_nak_seq_err"
    ),
    _hardware("out_of_sequence", "Packets received out of order.", "out_of_sequence"),
    _hardware("duplicate_requests", "Requests received twice.", "duplicate_request"),
    _hardware("ack_timeouts", "Packets whose answer did not come in time.", "local_ack_timeout_err"),
    _hardware(
        "retries_exceeded", "Transfers given up after all retries.",
        "req_transport_retries_exceeded",
    ),
    _hardware(
        "receiver_not_ready", "Packets that the far end's program was not ready for.",
        "rnr_nak_retry_err",
    ),
    _hardware(
        "retransmissions", "Packets sent again by adaptive retransmission.",
        "roce_adp_retrans", "retrans_pkts",
    ),
    _hardware("slow_restarts", "Transfers restarted slowly after idling or a loss.", "roce_slow_restart"),
    _hardware(
        "out_of_buffer", "Packets dropped because a program had no buffer posted.",
        "out_of_buffer", "rx_drops",
    ),
    _hardware("congestion_sent", "Congestion notifications sent: we are the receiver.", "np_cnp_sent"),
    _hardware(
        "congestion_handled", "Congestion notifications followed: we are told to slow down.",
        "rp_cnp_handled",
    ),
    _hardware(
        "congestion_ignored", "Congestion notifications not followed.", "rp_cnp_ignored"
    ),
    _hardware(
        "ecn_marked", "Packets received that a switch had marked as congested.",
        "np_ecn_marked_roce_packets",
    ),
)  # fmt: skip
