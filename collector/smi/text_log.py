"""Parser of plain `nvidia-smi -q`: labels and values, nested by indentation.

The log may be anywhere in a longer text (a support bundle, a capture of several commands): it
begins at its title and ends where a line at its left margin is of another format.
"""

from __future__ import annotations

import re

from collector.smi.document import (
    MAX_DEPTH,
    MAX_GPUS,
    MAX_GPUS_OF_A_LOG,
    MAX_LABEL,
    MAX_VALUES,
    Document,
    SmiGpu,
    label,
)

_TITLE = "=NVSMI LOG="
_GPU = re.compile(r"(\s*)GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*")
_OTHER = re.compile(r"[#=+|_$*<]|GPU \d+:")
"""Beginning of a line at the margin after the log: rules, tables, prompts, other lists."""
_PROCESSES = ("processes", "compute_processes")
_WHOLE = frozenset({"N/A", "None", "Disabled", "Enabled", "disabled", "enabled"})
"""Values that can't be a truncated form of another value."""


class _TextScanner:
    """Scan position: the log, its margin, the GPU, and the labels above the current line."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self.document: Document | None = None
        self.gpu: SmiGpu | None = None
        self.margin = 0
        self.above: list[tuple[int, str]] = []
        self.path: list[str] = []
        """Path of the last entry."""
        self.gpus = 0
        """GPUs of all documents."""

    def begin(self, margin: int) -> None:
        self.document, self.gpu, self.margin = Document(), None, margin
        self.documents.append(self.document)

    def line(self, line: str) -> None:
        if _TITLE in line:
            self.begin(len(line) - len(line.lstrip()))
            return
        if line.lstrip()[:4] == "GPU " and (match := _GPU.fullmatch(line)) is not None:
            if self.document is None:
                self.begin(len(match[1]))
            self.begin_gpu(match[2])
            return
        if self.document is None or not line or line.isspace():
            return
        indent = len(line) - len(line.lstrip()) - self.margin
        if indent <= 0 and _OTHER.match(line.lstrip()):
            self.document = self.gpu = None
            return
        name, colon, value = line.partition(":")
        if len(name) > MAX_LABEL + indent + self.margin:
            return
        if self.gpu is None:
            if indent <= 0 and colon and len(self.document.facts) < MAX_VALUES:
                self.document.facts.setdefault(label(name), value.strip())
        elif indent > 0:  # else a warning of another program in between
            self.entry(self.gpu, indent, label(name), value.strip() if colon else None)

    def begin_gpu(self, bus_id: str) -> None:
        if self.document is not None:
            self.gpu = SmiGpu(bus_id)
            self.gpus += 1
            self.above, self.path = [], []
            if len(self.document.gpus) >= MAX_GPUS_OF_A_LOG:
                self.gpu.complete = False
                self.document.gpus.pop()
            self.document.gpus.append(self.gpu)

    def entry(self, gpu: SmiGpu, indent: int, name: str, value: str | None) -> None:
        while self.above and self.above[-1][0] >= indent:
            self.above.pop()
        if len(self.above) >= MAX_DEPTH or len(gpu.values) >= MAX_VALUES:
            return
        self.above.append((indent, name))
        path = [word for _, word in self.above]
        self.path = path
        if path[0] in _PROCESSES:
            if len(path) == 1:
                gpu.values.setdefault("processes", value or "")
            elif name == "process_id" and len(gpu.processes) < MAX_VALUES:
                gpu.processes.append("")
            elif name == "type" and gpu.processes:
                gpu.processes[-1] = value or ""
        elif value is not None and path[0] != "mig_device":
            gpu.values.setdefault("/".join(path), value)


def parse_text(text: str) -> list[Document]:
    """Return every `nvidia-smi -q` log in a text, in order; possibly none.

    Logs without a GPU (`nvidia-smi -q --unit` prints such) count only when there is no other.
    """
    lines = text.split("\n")
    cut = lines.pop()  # "" when the text ends with a newline; else perhaps half a line
    if cut.partition(":")[2].strip() in _WHOLE:
        lines.append(cut)
    scanner = _TextScanner()
    for line in lines:
        scanner.line(line.rstrip())
        if scanner.gpus > MAX_GPUS or len(scanner.documents) > MAX_GPUS:
            break
    documents = [document for document in scanner.documents if document.gpus]
    if not documents:
        documents = [document for document in scanner.documents if document.facts]
        for document in documents:
            document.complete = document.attached == 0
    elif documents[-1] is scanner.document:
        _check_end(documents[-1], scanner.path, cut != "")
    return documents


def _check_end(document: Document, path: list[str], cut: bool) -> None:
    """Mark the last GPU of a text as cut off, when there is evidence.

    Each GPU ends with its processes, in every release, and each process with its memory. A log
    of selected parts (`nvidia-smi -q -d POWER`) has neither processes nor names, and is whole.
    """
    last = document.gpus[-1]
    if len(path) > 1 and path[0] in _PROCESSES and (cut or path[-1] != "used_gpu_memory"):
        last.values.pop("processes", None)  # some of the list is missing, so it can't be counted
    listed = any("processes" in gpu.values for gpu in document.gpus)
    named = "product_name" in last.values or not last.values
    if "processes" not in last.values and (listed or named):
        last.complete = document.complete = False
