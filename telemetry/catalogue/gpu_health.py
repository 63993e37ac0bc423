"""GPU rows: ECC, retired pages, row remaps, repairs, recovery action."""

from __future__ import annotations

from telemetry.catalogue.amd import AmdReader, BadPages, File, LibraryAnswer, Pick, Ras
from telemetry.catalogue.nvml import Call, Field
from telemetry.metric import Kind, Lane, Metric, Unit

# Field ids of nvml.h by (period, severity): first the sum, then the locations.
_ECC_FIELDS: dict[tuple[str, str], dict[str, int]] = {
    ("volatile", "corrected"): {
        "": 3, "l1_cache": 7, "l2_cache": 9, "dram": 11, "register_file": 13, "texture_memory": 15,
    },
    ("volatile", "uncorrected"): {
        "": 4, "l1_cache": 8, "l2_cache": 10, "dram": 12, "register_file": 14,
        "texture_memory": 16, "cbu": 17,
    },
    ("aggregate", "corrected"): {
        "": 5, "l1_cache": 18, "l2_cache": 20, "dram": 22, "register_file": 24,
        "texture_memory": 26,
    },
    ("aggregate", "uncorrected"): {
        "": 6, "l1_cache": 19, "l2_cache": 21, "dram": 23, "register_file": 25,
        "texture_memory": 27, "cbu": 28,
    },
}  # fmt: skip
_SINCE = {"volatile": "since the driver loaded", "aggregate": "in the life of the board"}
_BITS = {"corrected": "single_bit", "uncorrected": "double_bit"}
_SRAM_LOCATION = 7


_AMD_ECC: dict[tuple[str, str, str], tuple[AmdReader, ...]] = {
    ("volatile", "corrected", ""): (Ras("ce"), LibraryAnswer("gpu_total_ecc_count/corrected")),
    ("volatile", "uncorrected", ""): (Ras("ue"), LibraryAnswer("gpu_total_ecc_count/uncorrected")),
    ("volatile", "corrected", "dram"): (Ras("ce", "umc"), LibraryAnswer("gpu_ecc_count/corrected")),
    ("volatile", "uncorrected", "dram"): (Ras("ue", "umc"), LibraryAnswer("gpu_ecc_count/uncorrected")),
}
AMD_BLOCKS = ("gfx", "sdma", "mmhub", "pcie_bif", "hdp", "xgmi_wafl")
"""Blocks of AMD's GPUs that have counters of their own, beside the memory (`dram`)."""


def _ecc(period: str, severity: str, location: str, field: int) -> Metric:
    """Return the row of an ECC counter with a field id; an empty location is the sum of all."""
    place = location.replace("_", " ") if location else "all locations"
    old = f"ecc_errors/{period}/{_BITS[severity]}"
    paths = {
        "": (f"{old}/total",),
        "dram": (
            f"ecc_errors/{period}/dram_{'correctable' if severity == 'corrected' else 'uncorrectable'}",
            f"{old}/device_memory",
            f"{old}/dram",
        ),
    }.get(location, (f"{old}/{location}",))
    return Metric(
        name="_".join(filter(None, ("gpu_ecc", period, severity, location, "total"))),
        unit=Unit.COUNT,
        kind=Kind.COUNTER,
        lane=Lane.SLOW,
        help=f"ECC errors {severity}, {place}, {_SINCE[period]}.",
        sources={"nvml": (Field(field),), "smi": paths, "amd": _AMD_ECC.get((period, severity, location), ())},
    )


def _sram(period: str) -> tuple[Metric, ...]:
    """Return the rows of on-chip memory, which Ampere and newer count separately."""

    def row(word: str, text: str, nvml: tuple[Call, ...], *tags: str) -> Metric:
        return Metric(
            name=f"gpu_ecc_{period}_{word}_total",
            unit=Unit.COUNT,
            kind=Kind.COUNTER,
            lane=Lane.SLOW,
            help=f"{text} {_SINCE[period]}.",
            sources={"nvml": nvml, "smi": tuple(f"ecc_errors/{period}/{tag}" for tag in tags)},
        )

    counter = 0 if period == "volatile" else 1
    status = "nvmlDeviceGetSramEccErrorStatus"
    return (
        row(
            "corrected_sram",
            "ECC errors corrected in on-chip memory (SRAM),",
            (Call("nvmlDeviceGetMemoryErrorCounter", args=(0, counter, _SRAM_LOCATION)),),
            "sram_correctable",
        ),
        row(
            "uncorrected_sram",
            "ECC errors uncorrected in on-chip memory (SRAM),",
            (Call("nvmlDeviceGetMemoryErrorCounter", args=(1, counter, _SRAM_LOCATION)),),
            "sram_uncorrectable",
        ),
        row(
            "uncorrected_sram_parity",
            "Parity errors in on-chip memory (SRAM),",
            (Call(status, pick=f"{period}UncParity"),),
            "sram_uncorrectable_parity",
        ),
        row(
            "uncorrected_sram_secded",
            "SEC-DED errors in on-chip memory (SRAM),",
            (Call(status, pick=f"{period}UncSecDed"),),
            "sram_uncorrectable_secded",
            "sram_uncorrectable_sec_ded",
        ),
    )


def _remap(word: str, field: int, unit: Unit, text: str, *paths: str) -> Metric:
    return Metric(
        name=f"gpu_remapped_rows_{word}",
        unit=unit,
        lane=Lane.SLOW,
        help=text,
        sources={"nvml": (Field(field),), "smi": tuple(f"remapped_rows/{path}" for path in paths)},
    )


def _banks(word: str) -> Metric:
    return Metric(
        name=f"gpu_remap_banks_{word}",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        help=f"Memory banks whose supply of spare rows is: {word}.",
        sources={
            "nvml": (Call("nvmlDeviceGetRowRemapperHistogram", pick=word),),
            "smi": (
                f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{word}",
                f"remapped_rows/bank_remap_availability_histogram/{word}",
            ),
        },
    )


def _flag(name: str, text: str, nvml: Call | Field, *paths: str, amd: tuple[AmdReader, ...] = ()) -> Metric:
    return Metric(
        name=name,
        unit=Unit.FLAG,
        lane=Lane.SLOW,
        help=text,
        sources={"nvml": (nvml,), "smi": paths, "amd": amd},
        span=(0, 1),
    )


METRICS = (
    Metric(
        name="gpu_recovery_action",
        unit=Unit.STATE,
        lane=Lane.FAST,
        help="Recovery action that the driver requests; the best single sign of health.",
        sources={"nvml": (Field(230),), "smi": ("gpu_recovery_action",)},
        span=(0, 7),
        states=(
            (0, "none"),
            (1, "gpu reset"),
            (2, "node reboot"),
            (3, "drain p2p"),
            (4, "drain and reset"),
            (5, "recover imex domain"),
            (6, "bus reset"),
            (7, "system reboot"),
        ),
    ),
    _flag(
        "gpu_ecc_mode",
        "1 while ECC is on.",
        Call("nvmlDeviceGetEccMode", pick=0),
        "ecc_mode/current_ecc",
        "ecc_mode/current",
        amd=(File("ras/features", pick=Pick.UMC),),
    ),
    *(
        _ecc(period, severity, location, field)
        for (period, severity), fields in _ECC_FIELDS.items()
        for location, field in fields.items()
    ),
    *(metric for period in ("volatile", "aggregate") for metric in _sram(period)),
    _flag(
        "gpu_ecc_sram_threshold_exceeded",
        "1 when on-chip memory has had too many unique uncorrected errors: replace the board.",
        Call("nvmlDeviceGetSramEccErrorStatus", pick="bThresholdExceeded"),
        "ecc_errors/aggregate/sram_threshold_exceeded",
    ),
    *(
        Metric(
            name=f"gpu_retired_pages_{word}",
            unit=Unit.COUNT,
            lane=Lane.SLOW,
            help=f"Memory pages retired for {word.replace('_', ' ')} errors (before Ampere{amd_text}).",
            sources={
                "nvml": (Field(field),),
                "smi": (f"retired_pages/{tag}/retired_count", f"retired_pages/{label}"),
                "amd": amd,
            },
        )
        for word, field, tag, label, amd_text, amd in (
            ("single_bit", 29, "multiple_single_bit_retirement", "single_bit_ecc", "", ()),
            (
                "double_bit",
                30,
                "double_bit_retirement",
                "double_bit_ecc",
                "; AMD: all retired pages",
                (BadPages("R"), LibraryAnswer("gpu_bad_page_info/retired")),
            ),
        )
    ),
    _flag(
        "gpu_retired_pages_pending",
        "1 while a page waits for the next reset to be retired.",
        Field(31),
        "retired_pages/pending_retirement",
        "retired_pages/pending_blacklist",
        "retired_pages/pending_page_blacklist",
        "retired_pages/pending",
        amd=(BadPages("P", flag=True), LibraryAnswer("gpu_bad_page_info/pending")),
    ),
    Metric(
        name="gpu_retired_pages_failed",
        unit=Unit.FLAG,
        lane=Lane.SLOW,
        help="1 when a bad page of memory could not be retired (AMD).",
        sources={"amd": (BadPages("F", flag=True), LibraryAnswer("gpu_bad_page_info/failed"))},
        span=(0, 1),
    ),
    Metric(
        name="gpu_retired_pages_limit",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        help="Retired pages from which on the driver asks for another board (AMD).",
        sources={"amd": (LibraryAnswer("gpu_bad_page_threshold"),)},
    ),
    Metric(
        name="gpu_ecc_volatile_deferred_total",
        unit=Unit.COUNT,
        kind=Kind.COUNTER,
        lane=Lane.SLOW,
        help="ECC errors found but not yet consumed, all locations, since the driver loaded (AMD).",
        sources={"amd": (Ras("de"), LibraryAnswer("gpu_total_ecc_count/deferred"))},
    ),
    *(
        Metric(
            name=f"gpu_ecc_volatile_{severity}_{block}_total",
            unit=Unit.COUNT,
            kind=Kind.COUNTER,
            lane=Lane.SLOW,
            help=f"ECC errors {severity}, block {block} (AMD), since the driver loaded.",
            sources={"amd": (Ras(word, block),)},
        )
        for severity, word in (("corrected", "ce"), ("uncorrected", "ue"))
        for block in AMD_BLOCKS
    ),
    _remap(
        "correctable",
        142,
        Unit.COUNT,
        "Memory rows replaced because of correctable errors.",
        "remapped_row_corr",
        "correctable_error",
    ),
    _remap(
        "uncorrectable",
        143,
        Unit.COUNT,
        "Memory rows replaced because of uncorrectable errors.",
        "remapped_row_unc",
        "uncorrectable_error",
    ),
    _remap(
        "pending",
        144,
        Unit.FLAG,
        "1 while a row waits for the next reset to be replaced; work may go on.",
        "remapped_row_pending",
        "pending",
    ),
    _remap(
        "failure",
        145,
        Unit.FLAG,
        "1 when a row could not be replaced: replace the board.",
        "remapped_row_failure",
        "remapping_failure_occurred",
    ),
    *(_banks(word) for word in ("max", "high", "partial", "low", "none")),
    _flag(
        "gpu_channel_repair_pending",
        "1 while a memory channel waits for the next reset to be repaired.",
        Call("nvmlDeviceGetRepairStatus", pick="bChannelRepairPending"),
        "ecc_errors/channel_repair_pending",
    ),
    _flag(
        "gpu_tpc_repair_pending",
        "1 while a texture processing cluster waits for the next reset to be repaired.",
        Call("nvmlDeviceGetRepairStatus", pick="bTpcRepairPending"),
        "ecc_errors/tpc_repair_pending",
    ),
)
