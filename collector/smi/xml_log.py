"""Parser of `nvidia-smi -q -x`: a scanner of tags, on purpose not an XML parser.

Saved logs are truncated, concatenated, or carry process names with a bare `&` or `<`, and an XML
parser fails on all of these. A value counts only when its closing tag was seen, so a truncated log
never yields half a number. No entity or DTD is ever loaded.
"""

from __future__ import annotations

import html
import re

from collector.smi.document import MAX_DEPTH, MAX_GPUS, MAX_GPUS_OF_A_LOG, MAX_VALUES, Document, SmiGpu

_TAG = re.compile(r"<(/?)([A-Za-z_][\w.-]{0,99})((?:\s[^<>]{0,999})?/?)>")
_ID = re.compile(r"""\bid\s*=\s*["']([^"']*)["']""")
_ROOT = "nvidia_smi_log"
_PROCESSES = ("processes", "compute_processes")
_SKIPPED = frozenset({"supported_clocks", "accounted_processes", "mig_devices"})
"""Lists that repeat tags of other sections; they hold no metric of a whole GPU."""


class _XmlScanner:
    """Scan position: the document, the GPU, and the open tags below it."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self.document: Document | None = None
        self.gpu: SmiGpu | None = None
        self.open: list[str] = []
        self.leaf = False
        """Whether the innermost open tag has had no tag inside it."""
        self.gpus = 0
        """GPUs of all documents."""

    def start(self, tag: str, attributes: str) -> None:
        if tag == _ROOT:
            self.end_document(complete=False)
            self.document = Document()
        elif self.document is None:
            return
        elif tag == "gpu" and ((match := _ID.search(attributes)) or not self.open):
            self.end_gpu(complete=False)
            self.gpus += 1
            self.gpu = SmiGpu(match[1] if match else "")
        elif len(self.open) < MAX_DEPTH:
            self.open.append(tag)
            self.leaf = True

    def end(self, tag: str, text: str) -> None:
        if self.document is None:
            return
        if tag == _ROOT:
            self.end_document(complete=True)
        elif tag == "gpu" and "gpu" not in self.open:
            self.end_gpu(complete=True)
        elif tag in self.open:
            while self.open[-1] != tag:  # a tag that is never closed, as in a process name
                self.open.pop()
                self.leaf = False
            self.close_tag(html.unescape(text.strip()))

    def close_tag(self, text: str) -> None:
        path, leaf = self.open[:], self.leaf
        self.open.pop()
        self.leaf = False
        if self.gpu is None:
            if self.document is not None and leaf and len(path) == 1:
                if len(self.document.facts) >= MAX_VALUES:
                    return
                self.document.facts.setdefault(path[0], text)
        elif path[0] in _PROCESSES:
            self.process(self.gpu, path, text, leaf)
        elif leaf and path[0] not in _SKIPPED and len(self.gpu.values) < MAX_VALUES:
            self.gpu.values.setdefault("/".join(path), text)

    @staticmethod
    def process(gpu: SmiGpu, path: list[str], text: str, leaf: bool) -> None:
        if len(path) == 1:
            gpu.values.setdefault("processes", text if leaf else "")
        elif path[-1] == "pid" and len(path) == 3 and len(gpu.processes) < MAX_VALUES:
            gpu.processes.append("")
        elif path[-1] == "type" and len(path) == 3 and gpu.processes:
            gpu.processes[-1] = text

    def end_gpu(self, complete: bool) -> None:
        if self.gpu is not None and self.document is not None:
            if len(self.document.gpus) >= MAX_GPUS_OF_A_LOG:
                complete = False
                self.document.gpus.pop()
            self.gpu.complete = complete
            self.document.gpus.append(self.gpu)
        self.gpu, self.open, self.leaf = None, [], False

    def end_document(self, complete: bool) -> None:
        self.end_gpu(complete=False)
        if self.document is not None:
            self.document.complete = complete
            self.documents.append(self.document)
        self.document = None


def parse_xml(text: str) -> list[Document]:
    """Return every `<nvidia_smi_log>` in a text, in order; possibly none."""
    text = _without_comments(text)
    scanner = _XmlScanner()
    last = 0
    for match in _TAG.finditer(text):
        between = text[last : match.start()]
        last = match.end()
        tag = match[2].lower()
        if scanner.gpus > MAX_GPUS or len(scanner.documents) > MAX_GPUS:
            break
        if match[1]:
            scanner.end(tag, between)
        elif match[3].endswith("/"):
            scanner.start(tag, match[3])
            scanner.end(tag, "")
        else:
            scanner.start(tag, match[3])
    scanner.end_document(complete=False)
    return scanner.documents


def _without_comments(text: str) -> str:
    """Return a text without its comments; one that has no end stays. Linear in the text's length."""
    kept: list[str] = []
    at = 0
    while (begin := text.find("<!--", at)) >= 0 and (end := text.find("-->", begin + 4)) >= 0:
        kept.append(text[at:begin])
        at = end + 3
    return "".join([*kept, text[at:]]) if kept else text
