"""Output of `nvidia-smi nvlink`: the status (-s), error counters (-e) and capabilities (-c) of links.

A link that is down on all GPUs may not be wired, or the fabric may be down: this output can't say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from alerts.diagnosis.finding import Finding, FindingGpu, of_gpus, with_rule
from alerts.diagnosis.snapshot import GpuSnapshot, evaluate_snapshots
from alerts.xid.catalogue import XidSeverity
from kilowatch.saved_logs.part import Part
from telemetry.text import counted

_HEAD = re.compile(r"GPU (\d{1,4}): ([^\n]{1,200}?)(?: \(UUID: ([^)\n]{0,100})\))?\s*")
_LINK = re.compile(r"\s{1,99}Link (\d{1,3}): *([\d.]{1,20} GB/s|<?inactive>?)\s*", re.IGNORECASE)
_ERRORS = re.compile(r"\s{1,99}Link (\d{1,3}): *([A-Za-z][\w /]{0,60}?) *: *(\S{1,40})\s*")
_CAPABILITY = re.compile(r"\s{0,99}Link (\d{1,3}), .{1,60}supported: (?:true|false)\s*")
_NONE = re.compile(r"all links are inactive", re.IGNORECASE)

_IS_ERROR = re.compile(r"error|recovery|failed|CRC|replay|discard|overrun|malformed", re.IGNORECASE)
_IS_FAULT = re.compile(r"recovery errors?$|recovery failed", re.IGNORECASE)
"""Counters of which one is already a link that went down; the others grow on healthy links too."""


@dataclass(slots=True)
class _GpuLines:
    """Lines of one GPU."""

    gpu: FindingGpu
    states: dict[int, bool] = field(default_factory=dict)
    counters: dict[tuple[int, str], int] = field(default_factory=dict)
    capabilities: int = 0
    none_active: bool = False


def parts_of(text: str) -> Iterator[Part]:
    """Yield a part for each kind of output of `nvidia-smi nvlink` in a text."""
    blocks = _blocks(text) if ("Link" in text and "GPU " in text) or "links are in" in text else []
    status = [block for block in blocks if block.states or block.none_active]
    counters = [block for block in blocks if block.counters]
    if status:
        yield _of_status(status)
    if counters:
        yield _of_counters(counters)
    if not status and not counters and any(block.capabilities for block in blocks):
        yield Part(
            "nvidia-smi nvlink -c",
            gpus=[block.gpu for block in blocks],
            problem="it lists what the NVLinks are able to do, not whether they work: "
            "save `nvidia-smi nvlink -s` and `-e` too",
        )
    if not blocks and any(_CAPABILITY.fullmatch(line) for line in text[:65536].split("\n")):
        yield Part("nvidia-smi nvlink -c", problem="it lists what NVLinks are able to do, not whether they work")


def _blocks(text: str) -> list[_GpuLines]:
    found: list[_GpuLines] = []
    block: _GpuLines | None = None
    for line in text.split("\n"):
        if line.startswith("GPU ") and (head := _HEAD.fullmatch(line)) is not None:
            block = _GpuLines(FindingGpu(index=int(head[1]), uuid=head[3] or None, name=head[2]))
            found.append(block)
        elif block is None or not line:
            continue
        elif (link := _LINK.fullmatch(line)) is not None:
            block.states[int(link[1])] = "inactive" not in link[2].lower()
        elif (errors := _ERRORS.fullmatch(line)) is not None:
            if _IS_ERROR.search(errors[2]) and errors[3].isdigit() and len(errors[3]) < 20:
                block.counters[int(errors[1]), errors[2]] = int(errors[3])
        elif _CAPABILITY.fullmatch(line) is not None:
            block.capabilities += 1
        elif _NONE.search(line) is not None:
            block.none_active = True
        elif not line[0].isspace():
            block = None
    return [each for each in found if each.states or each.counters or each.capabilities or each.none_active]


def snapshots_of(blocks: list[_GpuLines]) -> list[GpuSnapshot]:
    """Return the GPUs of a status with the state of each link."""
    found = []
    for block in blocks:
        states = block.states
        links = [states.get(number, False) for number in range(max(states, default=-1) + 1)]
        found.append(
            GpuSnapshot(
                pci=None,
                name=block.gpu.name or "",
                readings={},
                uuid=block.gpu.uuid,
                index=block.gpu.index,
                links=[False] * 64 if block.none_active else links,
            )
        )
    return found


def _of_status(blocks: list[_GpuLines]) -> Part:
    gpus = snapshots_of(blocks)
    part = Part("nvidia-smi nvlink -s", gpus=[block.gpu for block in blocks], of_driver=True)
    part.findings = evaluate_snapshots(gpus)
    part.lacks = ["errors on NVLinks", "XIDs", "memory errors"]
    active = sum(sum(gpu.links) for gpu in gpus)
    down = sorted({n for block in blocks for n, up in block.states.items() if not up})
    numbers = ", ".join(map(str, down))
    if not active:
        part.problem = (
            "all NVLinks of all GPUs are inactive: no bridge or switch, MIG, or a fabric that is "
            "down. See `nvidia-smi -q` (MIG, Fabric), fabricmanager.log and the kernel log"
        )
    elif down and len(blocks) == 1:
        part.problem = f"links {numbers} are inactive, and no second GPU shows whether they are wired"
        part.broken = True
    else:
        part.shows = [f"NVLinks: {active} active on {counted(len(gpus), 'GPU')}"]
        if down and not part.findings:
            part.lacks.insert(0, f"whether links {numbers}, down on every GPU, are wired")
    return part


def _of_counters(blocks: list[_GpuLines]) -> Part:
    part = Part("nvidia-smi nvlink -e", gpus=[block.gpu for block in blocks], of_driver=True)
    part.lacks = ["the state of the links", "XIDs", "memory errors"]
    grown = 0
    for block in blocks:
        counted = {key: count for key, count in block.counters.items() if count}
        grown += len(counted)
        bad = {key: count for key, count in counted.items() if _IS_FAULT.search(key[1])}
        if bad:
            lines = [f"GPU {block.gpu.index}: Link {link}: {name}: {count}" for (link, name), count in counted.items()]
            one = Finding(
                severity=XidSeverity.TICKET,
                fault="nvlink_noise",
                count=len(bad),
                line=lines[0],
                lines=lines[:12],
                links=sorted({link for link, _ in bad}),
                action="Links went down and had to recover since the driver was loaded. Look for a "
                "reset or a lost GPU at that time; read the counters again, and if they grow, "
                "drain and reset the GPU and check the link.",
            )
            part.findings.append(with_rule(of_gpus(one, [block.gpu])))
    if grown and not part.findings:
        part.problem = (
            f"{grown} error counters of NVLinks are not zero; they count since the driver was "
            "loaded, and only growth is a fault. Save them twice, an hour apart, and compare"
        )
        part.broken = True
    elif not grown:
        count = len({(block.gpu.index, link) for block in blocks for link, _ in block.counters})
        part.shows = [f"NVLink errors: none on {count} links since the driver was loaded"]
    return part
