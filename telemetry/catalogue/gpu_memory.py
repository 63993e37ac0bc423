"""GPU rows: memory, PCIe, NVLink totals, fabric, processes, modes."""

from __future__ import annotations

from telemetry.catalogue.amd import AmdReader, Binary, File, KfdProcesses, LibraryAnswer, Pick
from telemetry.catalogue.nvml import (
    ALL_LINKS,
    EACH_LINK,
    NO_LINK,
    Bus,
    Call,
    CounterRate,
    Field,
    Fold,
    Gpm,
    LinkGpm,
    OfLinks,
)
from telemetry.metric import Kind, Lane, Metric, Unit

_KIBI = 1024.0
_MEBI = 1024.0 * 1024.0
_FABRIC = "nvmlDeviceGetGpuFabricInfoV"


def _bytes(name: str, lane: Lane, call: Call, path: str, text: str, *amd: AmdReader) -> Metric:
    older = (path.removeprefix("fb_"),) if path.startswith("fb_") else ()  # before driver 319
    return Metric(
        name=f"gpu_{name}_bytes",
        unit=Unit.BYTES,
        lane=lane,
        help=text,
        sources={"nvml": (call,), "smi": (path, *older), "amd": amd},
    )


_AMD_LINK = {
    "generation": File("current_link_speed", pick=Pick.SPEED),
    "generation_max": File("max_link_speed", pick=Pick.SPEED),
    "width": File("current_link_width"),
    "width_max": File("max_link_width"),
}
_AMD_PCIE: dict[str, tuple[AmdReader, ...]] = {
    "replays": (Binary("pcie_replay_count_acc"), File("pcie_replay_count"), LibraryAnswer("pcie_info/replays")),
    "replay_rollovers": (Binary("pcie_replay_rover_count_acc"), LibraryAnswer("pcie_info/rollovers")),
    "recoveries": (Binary("pcie_l0_to_recov_count_acc"), LibraryAnswer("pcie_info/recoveries")),
    "naks_sent": (Binary("pcie_nak_sent_count_acc"), LibraryAnswer("pcie_info/naks_sent")),
    "naks_received": (Binary("pcie_nak_rcvd_count_acc"), LibraryAnswer("pcie_info/naks_received")),
}


def _pcie(name: str, function: str, text: str, *paths: str) -> Metric:
    return Metric(
        name=f"gpu_pcie_link_{name}",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        help=text,
        sources={
            "nvml": (Call(function),),
            "smi": tuple(f"pci/{path}" for path in paths),
            "amd": (_AMD_LINK[name],) if name in _AMD_LINK else (),
        },
    )


def _pcie_count(word: str, field: int, text: str, *paths: str) -> Metric:
    return Metric(
        name=f"gpu_pcie_{word}_total",
        unit=Unit.COUNT,
        kind=Kind.COUNTER,
        lane=Lane.SLOW,
        help=f"PCIe {text} since the driver loaded.",
        sources={
            "nvml": (Field(field),),
            "smi": tuple(f"pci/{path}" for path in paths),
            "amd": _AMD_PCIE.get(word, ()),
        },
    )


def _traffic_of_links(fold: Fold) -> OfLinks:
    """Return what is made of the bytes a second of each NVLink that is active."""
    ways = LinkGpm(receive=False, scale=_MEBI), LinkGpm(receive=True, scale=_MEBI)
    return OfLinks(Bus.NVLINK, fold, ways, active=Field(165, scope=EACH_LINK))


def _of_c2c(*fields: int, fold: Fold = Fold.SUM) -> OfLinks:
    return OfLinks(Bus.C2C, fold, tuple(Field(field, scope=EACH_LINK) for field in fields))


def _fabric_health(word: str, shift: int, text: str, path: str = "") -> Metric:
    """Return the row of two bits of the health mask: 0 not supported, 1 yes, 2 no. `path` is where
    nvidia-smi prints it, if it does."""
    return Metric(
        name=f"gpu_fabric_{word}",
        unit=Unit.FLAG,
        lane=Lane.SLOW,
        help=text,
        sources={
            "nvml": (Call(_FABRIC, pick="healthMask", mask=3, shift=shift),),
            "smi": (f"fabric/health/{path}",) if path else (),
        },
        span=(0, 1),
    )


METRICS = (
    _bytes(
        "memory_used",
        Lane.FAST,
        Call("nvmlDeviceGetMemoryInfo_v2", pick="used"),
        "fb_memory_usage/used",
        "GPU memory in use by programs.",
        File("mem_info_vram_used"),
    ),
    _bytes(
        "memory_free",
        Lane.FAST,
        Call("nvmlDeviceGetMemoryInfo_v2", pick="free"),
        "fb_memory_usage/free",
        "GPU memory that can still be taken.",
        File("mem_info_vram_total", minus="mem_info_vram_used"),
    ),
    _bytes(
        "memory_total",
        Lane.SLOW,
        Call("nvmlDeviceGetMemoryInfo_v2", pick="total"),
        "fb_memory_usage/total",
        "GPU memory that the board has.",
        File("mem_info_vram_total"),
    ),
    _bytes(
        "memory_reserved",
        Lane.SLOW,
        Call("nvmlDeviceGetMemoryInfo_v2", pick="reserved"),
        "fb_memory_usage/reserved",
        "GPU memory that the driver and the firmware keep.",
    ),
    _bytes(
        "bar1_used",
        Lane.SLOW,
        Call("nvmlDeviceGetBAR1MemoryInfo", pick="bar1Used"),
        "bar1_memory_usage/used",
        "BAR1 window (GPU memory that PCIe devices see) in use.",
        File("mem_info_vis_vram_used"),
    ),
    _bytes(
        "bar1_free",
        Lane.SLOW,
        Call("nvmlDeviceGetBAR1MemoryInfo", pick="bar1Free"),
        "bar1_memory_usage/free",
        "BAR1 window that is free.",
        File("mem_info_vis_vram_total", minus="mem_info_vis_vram_used"),
    ),
    _bytes(
        "bar1_total",
        Lane.SLOW,
        Call("nvmlDeviceGetBAR1MemoryInfo", pick="bar1Total"),
        "bar1_memory_usage/total",
        "Size of the BAR1 window.",
        File("mem_info_vis_vram_total"),
    ),
    _pcie(
        "generation",
        "nvmlDeviceGetCurrPcieLinkGeneration",
        "PCIe generation now; falls at idle on many boards.",
        "pci_gpu_link_info/pcie_gen/current_link_gen",
        "gpu_link_info/pcie_generation/current",
    ),
    _pcie(
        "generation_max",
        "nvmlDeviceGetMaxPcieLinkGeneration",
        "Highest PCIe generation of this board in this slot.",
        "pci_gpu_link_info/pcie_gen/max_link_gen",
        "gpu_link_info/pcie_generation/max",
    ),
    _pcie(
        "generation_device_max",
        "nvmlDeviceGetGpuMaxPcieLinkGeneration",
        "Highest PCIe generation of the board alone.",
        "pci_gpu_link_info/pcie_gen/max_device_link_gen",
        "gpu_link_info/pcie_generation/device_max",
    ),
    _pcie(
        "width",
        "nvmlDeviceGetCurrPcieLinkWidth",
        "PCIe lanes in use; below the maximum is normal in many cloud machines.",
        "pci_gpu_link_info/link_widths/current_link_width",
        "gpu_link_info/link_width/current",
    ),
    _pcie(
        "width_max",
        "nvmlDeviceGetMaxPcieLinkWidth",
        "PCIe lanes that board and slot could use.",
        "pci_gpu_link_info/link_widths/max_link_width",
        "gpu_link_info/link_width/max",
    ),
    _pcie_count("replays", 94, "packets sent again", "replay_counter", "replays_since_reset"),
    _pcie_count(
        "replay_rollovers", 95, "replay number rollovers", "replay_rollover_counter", "replay_number_rollovers"
    ),
    _pcie_count("recoveries", 169, "link recoveries (L0 to recovery)"),
    _pcie_count("correctable_errors", 173, "correctable errors"),
    _pcie_count("naks_received", 174, "negative acknowledgements received"),
    _pcie_count("receiver_errors", 175, "receiver errors"),
    _pcie_count("bad_tlp", 176, "bad transaction layer packets"),
    _pcie_count("naks_sent", 177, "negative acknowledgements sent"),
    _pcie_count("bad_dllp", 178, "bad data link layer packets"),
    _pcie_count("non_fatal_errors", 179, "non-fatal errors"),
    _pcie_count("fatal_errors", 180, "fatal errors"),
    _pcie_count("unsupported_requests", 181, "unsupported requests"),
    _pcie_count("lcrc_errors", 182, "link CRC errors"),
    _pcie_count("lane_errors", 183, "lane errors"),
    Metric(
        name="gpu_pcie_transmit_bytes_total",
        unit=Unit.BYTES,
        kind=Kind.COUNTER,
        lane=Lane.SLOW,
        help="Bytes that the GPU sent over PCIe.",
        sources={"nvml": (Field(197),)},
    ),
    Metric(
        name="gpu_pcie_receive_bytes_total",
        unit=Unit.BYTES,
        kind=Kind.COUNTER,
        lane=Lane.SLOW,
        help="Bytes that the GPU received over PCIe.",
        sources={"nvml": (Field(198),)},
    ),
    Metric(
        name="gpu_nvlink_transmit_bytes_total",
        unit=Unit.BYTES,
        kind=Kind.COUNTER,
        lane=Lane.SLOW,
        help="Payload bytes sent over all NVLinks of the GPU.",
        sources={"nvml": (Field(138, _KIBI, ALL_LINKS),)},
    ),
    Metric(
        name="gpu_nvlink_receive_bytes_total",
        unit=Unit.BYTES,
        kind=Kind.COUNTER,
        lane=Lane.SLOW,
        help="Payload bytes received over all NVLinks of the GPU.",
        sources={"nvml": (Field(139, _KIBI, ALL_LINKS),)},
    ),
    Metric(
        name="gpu_c2c_links",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        help="NVLink-C2C links to the CPU of the same module (GH200, GB200).",
        sources={"nvml": (Field(170),)},
    ),
    Metric(
        name="gpu_nvlink_crc_data_errors_total",
        unit=Unit.COUNT,
        kind=Kind.COUNTER,
        lane=Lane.SLOW,
        help="CRC errors in the data of NVLinks, all links of the GPU; newer GPUs count none.",
        sources={"nvml": (Field(45),)},
    ),
    *(
        Metric(
            name=f"gpu_{bus}_{word}_bytes_per_second",
            unit=Unit.BYTES_PER_SECOND,
            help=f"Bytes a second that the GPU {text}, headers too: the mean since the reading before, from GPM (Hopper "
            "and newer), else from the growth of the counter.",
            sources={"nvml": (Gpm(number, _MEBI), CounterRate(counter))},
        )
        for bus, word, number, counter, text in (
            ("pcie", "transmit", 20, Field(197), "sent over PCIe"),
            ("pcie", "receive", 21, Field(198), "received over PCIe"),
            ("nvlink", "transmit", 61, Field(140, _KIBI, ALL_LINKS), "sent over all its NVLinks"),
            ("nvlink", "receive", 60, Field(141, _KIBI, ALL_LINKS), "received over all its NVLinks"),
        )
    ),
    *(
        Metric(
            name=f"gpu_c2c_{word}_bytes_per_second",
            unit=Unit.BYTES_PER_SECOND,
            lane=Lane.SLOW,
            help=f"Bytes a second that the GPU {text}, from GPM: the mean since the reading before.",
            sources={"nvml": (Gpm(number, _MEBI),)},
        )
        for word, number, text in (
            ("transmit", 100, "sent to its CPU over NVLink-C2C, headers too"),
            ("receive", 101, "received from its CPU over NVLink-C2C, headers too"),
            ("transmit_data", 102, "sent to its CPU over NVLink-C2C, without headers"),
            ("receive_data", 103, "received from its CPU over NVLink-C2C, without headers"),
        )
    ),
    Metric(
        name="gpu_nvlink_least_bytes_per_second",
        unit=Unit.BYTES_PER_SECOND,
        lane=Lane.SLOW,
        help="Bytes a second that the least used of the active NVLinks carried, both ways together: the mean since the "
        "reading before, as link_transmit_bytes_per_second. Links to switches share evenly, so one far below the others deserves a look.",
        sources={"nvml": (_traffic_of_links(Fold.LEAST),)},
    ),
    Metric(
        name="gpu_nvlink_least_link",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        help="Number of the NVLink that gpu_nvlink_least_bytes_per_second is of; the lowest of equals.",
        sources={"nvml": (_traffic_of_links(Fold.LEAST_LINK),)},
    ),
    Metric(
        name="gpu_c2c_links_active",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        help="NVLink-C2C links that are active, of gpu_c2c_links.",
        sources={"nvml": (_of_c2c(171),)},
    ),
    *(
        Metric(
            name=f"gpu_c2c_{word}_total",
            unit=Unit.COUNT,
            kind=Kind.COUNTER,
            lane=Lane.SLOW,
            help=f"{text} of NVLink-C2C, all links of the GPU; gpu_c2c_worst_link says which has most.",
            sources={"nvml": (_of_c2c(field),)},
        )
        for word, field, text in (
            ("crc_errors", 231, "CRC errors"),
            ("replays", 232, "Packets sent again"),
            ("replays_back_to_back", 233, "Packets sent again right after one that was"),
        )
    ),
    Metric(
        name="gpu_c2c_worst_link",
        unit=Unit.STATE,
        lane=Lane.SLOW,
        help="NVLink-C2C link with the most errors of all kinds together, the lowest number of equals.",
        sources={"nvml": (_of_c2c(231, 232, 233, fold=Fold.MOST_LINK),)},
        states=(*((number, f"link {number}") for number in range(14)), (int(NO_LINK), "none")),
    ),
    Metric(
        name="gpu_fabric_state",
        unit=Unit.STATE,
        lane=Lane.SLOW,
        help="State of the GPU's registration with the NVLink fabric.",
        sources={"nvml": (Call(_FABRIC, pick="state"),), "smi": ("fabric/state",)},
        states=((0, "not supported"), (1, "not started"), (2, "in progress"), (3, "completed")),
    ),
    Metric(
        name="gpu_fabric_status",
        unit=Unit.STATE,
        lane=Lane.SLOW,
        help="Result of the registration with the NVLink fabric; only of meaning once the state is "
        "completed. The links are up even after a registration that failed.",
        sources={"nvml": (Call(_FABRIC, pick="status"),), "smi": ("fabric/status",)},
        states=(
            (0, "success"),
            (3, "not supported by the GPU"),
            (10, "timeout"),
            (15, "GPU is lost"),
            (16, "GPU requires reset"),
            (17, "operating system error"),
            (20, "insufficient memory"),
            (23, "insufficient resources"),
            (27, "not ready"),
            (28, "GPU not found"),
            (29, "invalid state"),
            (999, "unknown error"),
        ),
    ),
    Metric(
        name="gpu_fabric_health",
        unit=Unit.STATE,
        lane=Lane.SLOW,
        help="Health of this GPU as the NVLink fabric reports it.",
        sources={"nvml": (Call(_FABRIC, pick="healthSummary"),), "smi": ("fabric/health/summary",)},
        states=((0, "not supported"), (1, "healthy"), (2, "unhealthy"), (3, "limited capacity")),
    ),
    _fabric_health("bandwidth_degraded", 0, "1 while the fabric runs at less than full bandwidth.", "bandwidth"),
    _fabric_health("route_recovery", 2, "1 while a route is being recovered.", "route_recovery_in_progress"),
    _fabric_health("route_unhealthy", 4, "1 while a route is unhealthy.", "route_unhealthy"),
    _fabric_health(
        "access_timeout_recovery", 6, "1 while an access timeout is being recovered.", "access_timeout_recovery"
    ),
    Metric(
        name="gpu_fabric_configuration",
        unit=Unit.STATE,
        lane=Lane.SLOW,
        help="What the NVLink fabric finds wrong in the configuration of this GPU.",
        sources={
            "nvml": (Call(_FABRIC, pick="healthMask", mask=15, shift=8),),
            "smi": ("fabric/health/incorrect_configuration",),
        },
        states=(
            (1, "none"),
            (2, "incorrect system GUID"),
            (3, "incorrect chassis serial number"),
            (4, "no partition"),
            (5, "insufficient NVLinks"),
            (6, "incompatible GPU firmware"),
            (7, "invalid location"),
            (8, "invalid state of the GPU"),
        ),
    ),
    _fabric_health("partition_assigned", 12, "1 while the GPU belongs to a partition of the fabric."),
    _fabric_health("manager_connected", 14, "1 while the global fabric manager of the NVLink domain answers."),
    Metric(
        name="gpu_processes",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        help="Processes that hold a compute context.",
        sources={
            "nvml": (Call("nvmlDeviceGetComputeRunningProcesses_v3", pick="len"),),
            "smi": ("processes",),
            "amd": (KfdProcesses(),),
        },
    ),
    Metric(
        name="gpu_mig_mode",
        unit=Unit.FLAG,
        lane=Lane.SLOW,
        help="1 while the GPU is split into MIG instances; utilisation and NVLink are then absent.",
        sources={"nvml": (Call("nvmlDeviceGetMigMode", pick=0),), "smi": ("mig_mode/current_mig", "mig_mode/current")},
        span=(0, 1),
    ),
    Metric(
        name="gpu_compute_partition",
        unit=Unit.STATE,
        lane=Lane.SLOW,
        help="Into how many devices an AMD GPU is split for programs; its rows are of the whole GPU.",
        sources={"amd": (File("current_compute_partition", pick=Pick.WORD),)},
        states=((1, "SPX"), (2, "DPX"), (3, "TPX"), (4, "QPX"), (8, "CPX")),
    ),
    Metric(
        name="gpu_memory_partition",
        unit=Unit.STATE,
        lane=Lane.SLOW,
        help="Into how many NUMA nodes the memory of an AMD GPU is split.",
        sources={"amd": (File("current_memory_partition", pick=Pick.WORD),)},
        states=((1, "NPS1"), (2, "NPS2"), (4, "NPS4"), (8, "NPS8")),
    ),
)
