"""`/metrics/dcgm/{node}`: a node's readings under the names, units and labels of dcgm-exporter.

Existing dashboards and alert rules keep working: Grafana's dashboard 12239 does, unchanged, with the
targets of `/sd/dcgm`. Of the exporter's default counters those are left out that equal no metric of
the catalogue (NVLink bandwidth, whose unit differs by release, PCIe rates and the vGPU licence); of those that
it serves on request, the errors, retired pages, power limit and fan are here. One that a GPU does not support is absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from aiohttp import web

from aggregator.http.auth import CALLER
from aggregator.http.errors import unknown
from aggregator.http.load_metrics import shed_family
from aggregator.http.parameters import one_of, query
from aggregator.http.present_jobs import holders_of
from aggregator.http.reply import VIEW, send
from aggregator.register.node_status import status_of
from aggregator.view import AggregatorView
from alerts.xid.catalogue import meaning_of
from api.fleet import NodeStatus
from telemetry.devices import Gpu
from telemetry.fleet import Node
from telemetry.metric import Table
from telemetry.text.decimals import plain
from telemetry.wire.exposition import CONTENT_TYPE, COUNTER, GAUGE, Family, labels, render
from telemetry.wire.jobs import NodeJobs

HOST_LABELS = ("Hostname", "hostname")
"""The label of dcgm-exporter with the node's name: the first up to release 4.8.2, the second since."""
JOB_LABELS = ("no", "yes")
"""Whether readings have the labels of the job that has their GPU, as the exporter writes them where it is told to."""
_MIB = 1 / (1 << 20)


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter of the exporter, and the metric of the catalogue that it equals."""

    name: str
    help: str
    metric: str
    scale: float = 1.0
    kind: str = GAUGE
    of_instance: str = ""
    """The metric of a MIG instance that it equals. Instances stand in place of their GPU, as at the exporter."""


COUNTERS = (
    Counter("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", "gpu_sm_clock_hertz", 1e-6),
    Counter("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", "gpu_memory_clock_hertz", 1e-6),
    Counter("DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C).", "gpu_memory_temperature_celsius"),
    Counter("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", "gpu_temperature_celsius"),
    Counter("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", "gpu_power_watts"),
    Counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since the driver was loaded (in mJ).", "gpu_energy_joules_total", 1e3, COUNTER),
    Counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "PCIe retries.", "gpu_pcie_replays_total", kind=COUNTER),
    Counter("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", "gpu_utilization_ratio", 100),
    Counter("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", "gpu_memory_utilization_ratio", 100),
    Counter("DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %).", "gpu_encoder_utilization_ratio", 100),
    Counter("DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %).", "gpu_decoder_utilization_ratio", 100),
    Counter("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", "gpu_memory_free_bytes", _MIB),
    Counter("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", "gpu_memory_used_bytes", _MIB, of_instance="instance_memory_used_bytes"),
    Counter("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", "gpu_memory_reserved_bytes", _MIB),
    Counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Rows remapped for uncorrectable errors.", "gpu_remapped_rows_uncorrectable", kind=COUNTER),
    Counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Rows remapped for correctable errors.", "gpu_remapped_rows_correctable", kind=COUNTER),
    Counter("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed.", "gpu_remapped_rows_failure"),
    Counter("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "ECC errors corrected since the driver was loaded.", "gpu_ecc_volatile_corrected_total", kind=COUNTER),
    Counter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "ECC errors not corrected since the driver was loaded.", "gpu_ecc_volatile_uncorrected_total", kind=COUNTER),
    Counter("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "ECC errors corrected in the life of the board.", "gpu_ecc_aggregate_corrected_total", kind=COUNTER),
    Counter("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "ECC errors not corrected in the life of the board.", "gpu_ecc_aggregate_uncorrected_total", kind=COUNTER),
    Counter("DCGM_FI_DEV_RETIRED_SBE", "Pages retired for single-bit errors.", "gpu_retired_pages_single_bit", kind=COUNTER),
    Counter("DCGM_FI_DEV_RETIRED_DBE", "Pages retired for double-bit errors.", "gpu_retired_pages_double_bit", kind=COUNTER),
    Counter("DCGM_FI_DEV_RETIRED_PENDING", "Whether pages wait to be retired.", "gpu_retired_pages_pending", kind=COUNTER),
    Counter("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "Power limit in force (in W).", "gpu_power_limit_watts"),
    Counter("DCGM_FI_DEV_FAN_SPEED", "Fan speed (in %).", "gpu_fan_speed_ratio", 100),
    Counter("DCGM_FI_PROF_SM_ACTIVE", "Part of the time that an SM had a warp (0 to 1).", "gpu_sm_active_ratio", of_instance="instance_sm_active_ratio"),
    Counter("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Part of the time that the tensor pipe was active (0 to 1).", "gpu_tensor_active_ratio", of_instance="instance_tensor_active_ratio"),
    Counter("DCGM_FI_PROF_DRAM_ACTIVE", "Part of the time that the memory interface was active (0 to 1).", "gpu_dram_active_ratio", of_instance="instance_dram_active_ratio"),
)  # fmt: skip
XID = "DCGM_FI_DEV_XID_ERRORS"


def families(
    view: AggregatorView, node: Node, host_label: str, jobs: NodeJobs | None = None
) -> Iterator[Family]:
    """Return a node's readings as the exporter would show them; nothing while it is not online. `jobs`: who has its
    GPUs, where readings are to say so."""
    if status_of(node, view.now()) is not NodeStatus.ONLINE:
        return
    gpus = [gpu for gpu in node.inventory.gpus if gpu.present]
    rows = [
        node.rows[Table.GPU].start + place
        for place, gpu in enumerate(node.inventory.gpus)
        if gpu.present
    ]
    pairs = [_pairs(node, gpu, host_label) for gpu in gpus]
    fragments = [
        labels({**each, **_of_job(jobs, gpu.uuid)}) for gpu, each in zip(gpus, pairs, strict=True)
    ]
    parts, where = list(_instances(node, gpus, pairs, jobs)), node.rows[Table.INSTANCE]
    split = {each.gpu for each in node.inventory.instances}
    whole = [gpu.uuid not in split for gpu in gpus]
    for counter in COUNTERS:
        column = plain(view.fleet.column(counter.metric, view.now())[rows])
        values = np.round(column * counter.scale, 6).tolist()
        samples = list(zip(fragments, values, strict=True))
        if counter.of_instance and parts:
            column = plain(view.fleet.column(counter.of_instance, view.now())[where])
            values = np.round(column * counter.scale, 6).tolist()
            samples = [sample for sample, alone in zip(samples, whole, strict=True) if alone]
            samples += [(its, value) for its, value in zip(parts, values, strict=True) if its]
        yield Family(counter.name, counter.help, counter.kind, samples)
    yield Family(XID, "The last XID error of this GPU; 0 while none is known.", GAUGE,
                 list(_xids(view, gpus, pairs)))  # fmt: skip


def _pairs(node: Node, gpu: Gpu, host_label: str) -> dict[str, str | None]:
    domain, colon, rest = (gpu.pci or "").partition(":")
    return {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": f"{domain:0>8}{colon}{rest}" if rest else None,
        "device": f"nvidia{gpu.index if gpu.minor is None else gpu.minor}",
        "modelName": gpu.name,
        host_label: node.inventory.node,
        "DCGM_FI_DRIVER_VERSION": node.inventory.driver_version,
    }


def _instances(
    node: Node,
    gpus: Iterable[Gpu],
    pairs: Iterable[dict[str, str | None]],
    jobs: NodeJobs | None,
) -> Iterator[str]:
    """Yield the labels of each MIG instance; "" for one of a GPU that is gone."""
    its = {gpu.uuid: pair for gpu, pair in zip(gpus, pairs, strict=True)}
    for each in node.inventory.instances:
        if each.gpu not in its:
            yield ""
            continue
        own = {"GPU_I_PROFILE": each.profile or None, "GPU_I_ID": str(each.gpu_instance)}
        yield labels({**its[each.gpu], **own, **_of_job(jobs, each.gpu, each.gpu_instance)})


def _of_job(message: NodeJobs | None, gpu: str, instance: int | None = None) -> dict[str, str]:
    """Return the exporter's labels of the only job that has a GPU or an instance of it: `hpc_job` of a batch system,
    `pod`, `namespace` and `container` of Kubernetes. None where several have it."""
    if message is None:
        return {}
    found = holders_of(message, gpu, (instance,))
    if len(found) != 1:
        return {}
    ((key, step),) = [(each.job, each.step) for each in found]
    if key.scheduler == "kubernetes":
        namespace, _, pod = key.id.partition("/")
        return {"namespace": namespace, "pod": pod, "container": step}
    return {"hpc_job": key.id} if key.scheduler == "slurm" else {}


def _xids(
    view: AggregatorView, gpus: Iterable[Gpu], pairs: Iterable[dict[str, str | None]]
) -> Iterator[tuple[str, float]]:
    last: dict[str, int] = {}
    for event in view.recent_events():  # newest first
        xid = event.data.get("xid")
        if event.kind == "xid" and event.gpu is not None and isinstance(xid, int):
            last.setdefault(event.gpu, xid)
    for gpu, its in zip(gpus, pairs, strict=True):
        xid = last.get(gpu.uuid, 0)
        text = meaning_of(xid).name or "Unknown Error" if xid else "No Error"
        yield labels({**its, "err_code": str(xid), "err_msg": text}), float(xid)


async def node_page(request: web.Request) -> web.Response:
    """Answer with a node's readings under dcgm-exporter's names."""
    view, name = request.app[VIEW], request.match_info["node"]
    node = view.fleet.nodes.get(name)
    if node is None:
        raise unknown("node", name, view.fleet.nodes)
    asked = query(request, "host_label", "job_labels")
    label = one_of(asked, "host_label", HOST_LABELS)
    wanted = one_of(asked, "job_labels", JOB_LABELS) == "yes" and request[CALLER].sees_private
    if view.shedding.sheds("device_metrics"):
        view.shedding.pages_reduced += 1
        page = [shed_family(view.shedding)]
    else:
        page = list(families(view, node, label, view.jobs.lists.get(name) if wanted else None))
    return await send(request, lambda: render(page), CONTENT_TYPE)


def host_label(request: web.Request) -> str:
    """Return the requested label for the node's name. Raises a 400 for another word."""
    return one_of(query(request, "host_label"), "host_label", HOST_LABELS)
