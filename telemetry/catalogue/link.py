"""Link rows: readings of each NVLink or xGMI link of each GPU."""

from __future__ import annotations

from telemetry.catalogue.amd import Binary, LibraryAnswer
from telemetry.catalogue.nvml import EACH_LINK, CounterRate, Field, LinkGpm
from telemetry.metric import Kind, Lane, Metric, Table, Unit

_KIBI = 1024.0
_MEBI = 1024.0**2
_MEGA = 1e6
_GIGABIT = 1e9 / 8


def _count(word: str, text: str, *fields: int, scale: float = 1.0) -> Metric:
    return Metric(
        name=f"link_{word}_total",
        unit=Unit.BYTES if word.endswith("bytes") else Unit.COUNT,
        kind=Kind.COUNTER,
        table=Table.LINK,
        lane=Lane.SLOW,
        help=text,
        sources={"nvml": tuple(Field(field, scale, EACH_LINK) for field in fields)},
    )


def _ber(word: str, field: int, text: str) -> Metric:
    return Metric(
        name=f"link_{word}_ber",
        unit=Unit.RATIO,
        table=Table.LINK,
        lane=Lane.SLOW,
        help=f"{text}; the driver packs it as mantissa and exponent, here it is the plain number.",
        sources={"nvml": (Field(field, scope=EACH_LINK),)},
    )


METRICS = (
    Metric(
        name="link_state",
        unit=Unit.STATE,
        table=Table.LINK,
        help="Whether the link is up.",
        sources={
            "nvml": (Field(165, scope=EACH_LINK),),
            "amd": (Binary("xgmi_link_status", fold="link"), LibraryAnswer("gpu_xgmi_link_status")),
        },
        span=(0, 3),
        states=((0, "inactive"), (1, "active"), (2, "sleep"), (3, "traffic disabled")),
    ),
    Metric(
        name="link_speed_bytes_per_second",
        unit=Unit.BYTES_PER_SECOND,
        table=Table.LINK,
        lane=Lane.SLOW,
        help="Speed of the link in one direction.",
        sources={
            "nvml": (Field(164, _MEGA, EACH_LINK),),
            "amd": (Binary("xgmi_link_speed", _GIGABIT, times="xgmi_link_width"),),
        },
    ),
    Metric(
        name="link_transmit_bytes_total",
        unit=Unit.BYTES,
        kind=Kind.COUNTER,
        table=Table.LINK,
        lane=Lane.SLOW,
        help="Bytes sent over the link.",
        sources={
            "nvml": (Field(202, scope=EACH_LINK), Field(138, _KIBI, EACH_LINK)),
            "amd": (Binary("xgmi_write_data_acc", _KIBI, "link"),),
        },
    ),
    Metric(
        name="link_receive_bytes_total",
        unit=Unit.BYTES,
        kind=Kind.COUNTER,
        table=Table.LINK,
        lane=Lane.SLOW,
        help="Bytes received over the link.",
        sources={
            "nvml": (Field(204, scope=EACH_LINK), Field(139, _KIBI, EACH_LINK)),
            "amd": (Binary("xgmi_read_data_acc", _KIBI, "link"),),
        },
    ),
    *(
        Metric(
            name=f"link_{way}_bytes_per_second",
            unit=Unit.BYTES_PER_SECOND,
            table=Table.LINK,
            lane=Lane.SLOW,
            help=f"Bytes a second that the GPU {text} the link, headers too: the mean since the reading before, from GPM "
            "(Hopper and newer), else from the growth of the counter.",
            sources={"nvml": (traffic, CounterRate(Field(field, _KIBI, EACH_LINK)))},
        )
        for way, traffic, field, text in (
            ("transmit", LinkGpm(receive=False, scale=_MEBI), 140, "sent over"),
            ("receive", LinkGpm(receive=True, scale=_MEBI), 141, "received over"),
        )
    ),
    _count("replays", "Packets sent again (up to Hopper).", 161),
    _count("recoveries", "Number of times that the link was trained again.", 215, 162),
    _count("recoveries_successful", "Recoveries that succeeded.", 213),
    _count("recoveries_failed", "Recoveries that failed: the link is lost.", 214),
    _count("crc_errors", "CRC errors (up to Hopper).", 163),
    _count("transmit_packets", "Packets sent (Blackwell).", 201),
    _count("receive_packets", "Packets received (Blackwell).", 203),
    _count("malformed_packets", "Packets that made no sense (Blackwell).", 206),
    _count("buffer_overruns", "Packets lost because a buffer was full (Blackwell).", 207),
    _count("receive_errors", "Packets received with an error (Blackwell).", 208),
    _count("remote_errors", "Packets that the far side had marked bad (Blackwell).", 209),
    _count("general_errors", "Other errors on receiving (Blackwell).", 210),
    _count("integrity_errors", "Local link integrity errors (Blackwell).", 211),
    _count("transmit_discards", "Packets thrown away before sending (Blackwell).", 212),
    _count("effective_errors", "Errors left after correction (Blackwell).", 219),
    _count("symbol_errors", "Symbol errors (Blackwell).", 221),
    _count(
        "fec_last_bin",
        "Last bin of the history of error correction: what came as near to being lost as can be corrected (Blackwell).",
        250,
    ),
    _ber("effective", 220, "Bit error rate left after correction (Blackwell)"),
    _ber("symbol", 222, "Symbol error rate (Blackwell)"),
)
