"""Output of `nvidia-smi topo -m`: how GPUs reach each other."""

from __future__ import annotations

import re
from collections import Counter

from alerts.diagnosis.finding import Finding, FindingGpu, of_gpus, with_rule
from alerts.xid.catalogue import XidSeverity
from kilowatch.saved_logs.part import Part

_HEAD = re.compile(
    r"^[ \t]{0,40}(?:\x1b\[\d{0,2}m)?[ \t]{0,40}((?:GPU\d{1,3}[ \t]{1,40}){1,256})[^\n]{0,4000}Affinity", re.MULTILINE
)
_ROW = re.compile(r"^(?:\x1b\[\d{0,2}m)?GPU(\d{1,3})\s+(\S.*)$", re.MULTILINE)
_PATH = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV\d{1,3}|N/A|OK")


def part_of(text: str) -> Part | None:
    """Return what a matrix of `nvidia-smi topo -m` says; None for a text without one."""
    head = _HEAD.search(text) if "GPU0" in text and "Affinity" in text else None
    if head is None:
        return None
    names = [int(word[3:]) for word in head[1].split()]
    rows: dict[int, list[str]] = {}
    for row in _ROW.finditer(text, head.end()):
        words = row[2].split()[: len(names)]
        if len(words) == len(names) and all(_PATH.fullmatch(word) for word in words):
            rows.setdefault(int(row[1]), words)
    part = Part("nvidia-smi topo -m", gpus=[FindingGpu(index=name) for name in names])
    part.lacks = ["errors on NVLinks", "XIDs", "memory errors"]
    if set(rows) != set(names):
        part.problem = f"rows of {len(rows)} of {len(names)} GPUs: the matrix is cut off"
        part.broken = True
        return part
    bonds = {
        (name, other): int(word[2:]) if word.startswith("NV") else 0
        for name, words in rows.items()
        for other, word in zip(names, words, strict=True)
        if other != name
    }
    usual = Counter(bond for bond in bonds.values() if bond).most_common(1)
    full = usual[0][0] if usual else 0
    weak = [
        name
        for name in names
        if 2 * sum(bonds[name, other] < full for other in names if other != name) > len(names) - 1
    ]
    strong = [name for name in names if name not in weak]
    meshed = all(bonds[a, b] >= full for a in strong for b in strong if a != b)
    if not full or len(strong) < 2 or not meshed:
        part.problem = (
            "it shows how GPUs are connected, not whether they are well: without NVLinks from "
            "each GPU to each other, nothing in it says what should be there"
        )
        return part
    for name in weak:
        line = f"GPU{name} {' '.join(rows[name])}"
        one = Finding(
            severity=XidSeverity.TICKET,
            fault="nvlink_down",
            line=line,
            lines=[line],
            action=f"This GPU reaches others over fewer NVLinks than the usual {full}. See "
            "`nvidia-smi nvlink -s` and the kernel log; drain and reset the GPU if links stay down.",
        )
        part.findings.append(with_rule(of_gpus(one, [FindingGpu(index=name)])))
    if not weak:
        part.shows = [f"NVLinks: each of {len(names)} GPUs reaches each other over {full}"]
    return part
