"""Findings of logs and documents of one node, joined by cause.

A GPU that is lost in the log is lost for nvidia-smi too; one whose memory waits for a spare row logged
an XID 63. Different faults of one GPU stay apart, so that none hides another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from alerts.diagnosis.finding import MOST_LINES, Finding, FindingGpu, of_gpus, with_rule, worst_first
from alerts.xid.catalogue import XidSeverity

_SHOWN_AS = {
    "ecc_dbe": {"ecc_volatile"},
    "ecc_contained": {"ecc_volatile"},
    "ecc_uncontained": {"ecc_volatile"},
    "ecc_repeat": {"ecc_volatile"},
    "remap_failure": {"ecc_uncontained"},
}
"""Faults of a log, by the faults as which nvidia-smi shows the same."""
_OF_A_NODE = frozenset({"driver_mismatch", "driver_down", "driver_hung", "power_brake"})


def merge(logged: Iterable[Finding], documents: Iterable[Finding]) -> list[Finding]:
    """Return the findings of logs and of documents, one per cause, worst first."""
    merged = list(logged)
    added: list[Finding] = []
    for shown in _distinct(documents):
        at = next((n for n, known in enumerate(merged) if _same_cause(known, shown)), None)
        if at is None:
            added.append(shown)
        else:
            merged[at] = _joined(merged[at], shown)
    return worst_first(_join_recovery(merged + added))


class GpuIdentities:
    """Everything that the files tell of the GPUs of each node."""

    def __init__(self, gpus: Iterable[tuple[str | None, FindingGpu]]) -> None:
        """`gpus`: each with the name of its node."""
        self._known: dict[tuple[str | None, str], FindingGpu] = {}
        for node, gpu in gpus:
            for key in (gpu.pci, gpu.uuid, None if gpu.index is None else f"#{gpu.index}"):
                if key is not None:
                    before = self._known.get((node, key), FindingGpu())
                    self._known[node, key] = _completed(gpu, before)

    def complete(self, gpu: FindingGpu, node: str | None) -> FindingGpu:
        """Return a GPU of a node with what else is known of it."""
        index = None if gpu.index is None or gpu.pci or gpu.uuid else f"#{gpu.index}"
        for key in (gpu.uuid, gpu.pci, index):
            if key is not None and (more := self._known.get((node, key))) is not None:
                return _completed(gpu, more)
        return gpu

    def identify(self, found: Iterable[Finding]) -> list[Finding]:
        """Return findings with what is known of their GPUs."""
        return [of_gpus(one, [self.complete(gpu, one.node) for gpu in one.gpus]) if one.gpus else one for one in found]


def _completed(gpu: FindingGpu, more: FindingGpu) -> FindingGpu:
    """Return a GPU with what another description of it adds."""
    names = gpu.__struct_fields__
    return FindingGpu(
        **{name: getattr(gpu, name) if getattr(gpu, name) is not None else getattr(more, name) for name in names}
    )


def _distinct(found: Iterable[Finding]) -> list[Finding]:
    """Return the findings without repetitions in several documents of one node."""
    kept: dict[tuple[object, ...], Finding] = {}
    for one in found:
        gpus = frozenset(gpu.uuid or gpu.pci or gpu.index for gpu in one.gpus)
        key = (one.node, one.fault, one.severity, gpus, tuple(one.links))
        before = kept.get(key)
        kept[key] = (
            one if before is None else msgspec.structs.replace(before, files=sorted({*before.files, *one.files}))
        )
    return list(kept.values())


def _same_cause(known: Finding, shown: Finding) -> bool:
    if known.node != shown.node and None not in {known.node, shown.node}:
        return False
    if not shows_as(known.fault, shown.fault):
        return False
    if known.fault in _OF_A_NODE:
        return True
    return bool(_addresses(known) & _addresses(shown))


def shows_as(fault: str, state: str) -> bool:
    """Return whether nvidia-smi shows a fault of a log as this state."""
    return state == fault or state in _SHOWN_AS.get(fault, ())


def _addresses(one: Finding) -> set[str]:
    named = {key for gpu in one.gpus for key in (gpu.pci, gpu.uuid)}
    return {key for key in (one.gpu, *named) if key is not None}


def _joined(known: Finding, shown: Finding) -> Finding:
    """Return two findings of one cause as one."""
    more = {gpu.pci: gpu for gpu in shown.gpus if gpu.pci is not None}
    gpus = known.gpus or [FindingGpu(pci=pci) for pci in (known.gpu,) if pci is not None]
    gpus = [_completed(gpu, more.pop(gpu.pci or "", FindingGpu())) for gpu in gpus]
    worst = min(known.severity, shown.severity, key=lambda one: one.rank)
    joined = msgspec.structs.replace(
        known,
        severity=worst,
        node=known.node or shown.node,
        links=sorted({*known.links, *shown.links}),
        count=known.count + shown.count,
        lines=list(dict.fromkeys([*known.lines, *shown.lines]))[:MOST_LINES],
        files=sorted({*known.files, *shown.files}),
    )
    return with_rule(of_gpus(joined, gpus + list(more.values())))


def _join_recovery(incidents: Sequence[Finding]) -> list[Finding]:
    """Give a recovery action that nvidia-smi shows to the fault of that GPU in the log."""
    causes: dict[tuple[str | None, str | None], Finding] = {
        (one.node, one.gpu): one
        for one in reversed(worst_first(incidents))
        if one.xids and one.gpu and one.severity.rank <= XidSeverity.TICKET.rank
    }
    kept = {id(one): one for one in incidents}
    for asked in incidents:
        cause = causes.get((asked.node, asked.gpu))
        if cause is None or asked.xids or not asked.fault.startswith("recovery"):
            continue
        del kept[id(asked)]
        joined = _joined(kept[id(cause)], asked)
        action = f"{joined.action} {asked.action}"
        kept[id(cause)] = with_rule(msgspec.structs.replace(joined, action=action))
    return list(kept.values())
