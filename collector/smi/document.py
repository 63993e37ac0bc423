"""Content of a log of nvidia-smi before conversion: raw strings by path.

A path leads down from a GPU in a normal form: XML tags in lower case, text labels as words in
lower case joined by `_`, levels joined by `/`. So `temperature/gpu_temp` is an XML tag, and
`temperature/gpu_current_temp` is the text label for the same thing; the catalogue names both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NOT_A_WORD = re.compile(r"[^0-9a-z]+")
_UNREACHABLE = re.compile(
    r"Unable to determine the device handle for gpu\s*"
    r"(?:(?P<index>\d{1,3})\s*:\s*)?"  # driver 610 prints the index too, or the index alone
    r"(?P<bus>[0-9a-f]{1,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?)?"
    r"\s*:?\s*(?P<message>.*)",
    re.IGNORECASE,
)


MAX_DEPTH = 16
"""Levels below a GPU; nvidia-smi's deepest has six. What is deeper is skipped."""
MAX_VALUES = 8192
"""Values of a GPU, and facts of a document; nvidia-smi prints at most 700."""
MAX_GPUS = 65_536
"""GPUs of all logs of a file: a day of eight GPUs at ten seconds. Later ones are left out."""
MAX_GPUS_OF_A_LOG = 256
"""GPUs of one log; later ones are left out, and the log counts as cut off."""
MAX_LABEL = 200
"""Characters of a tag or label."""

UNREACHABLE = "unreachable"
"""Path of the message about a GPU that could not be opened; the GPU has no other path."""


@dataclass(slots=True)
class SmiGpu:
    """GPU of a log."""

    bus_id: str
    """As nvidia-smi writes it: `00000000:18:00.0`."""
    values: dict[str, str] = field(default_factory=dict)
    """Raw words by path. Where a path repeats, the first counts."""
    processes: list[str] = field(default_factory=list)
    """Type of each process listed (`C`, `G`, `C+G`, `M+C`), "" where the log has none."""
    complete: bool = True
    """False when the log ends in the middle of this GPU."""


@dataclass(slots=True)
class Document:
    """Log of a single run of `nvidia-smi -q` or `nvidia-smi -q -x`."""

    facts: dict[str, str] = field(default_factory=dict)
    """Entries above the GPUs: `timestamp`, `driver_version`, `attached_gpus` ..."""
    gpus: list[SmiGpu] = field(default_factory=list)
    """In the order of the log, which is the order of their indices."""
    complete: bool = True
    """False when the log has no end."""
    unreachable: dict[str, str] = field(default_factory=dict)
    """Messages about GPUs that could not be opened, by bus id."""
    links: dict[int, list[tuple[int, float | None]]] = field(default_factory=dict)
    """NVLinks by GPU index: number and speed in bytes per second, None for an inactive one."""

    def fact(self, *names: str) -> str | None:
        """Return the first of these facts that is there, or None."""
        return next((self.facts[name] for name in names if self.facts.get(name)), None)

    @property
    def attached(self) -> int | None:
        """Number of GPUs by the log's own heading."""
        count = self.facts.get("attached_gpus", "")
        return int(count) if count.isascii() and count.isdigit() and len(count) < 6 else None

    def shortfall(self) -> str:
        """Return in one sentence what the log lacks, "" when it is whole."""
        cut = next((gpu for gpu in self.gpus if not gpu.complete), None)
        count = f"{len(self.gpus)} of {self.attached} GPUs" if self.attached else "GPUs"
        if cut is not None:
            return f"the log is cut off in the middle of GPU {cut.bus_id}: {count} are here"
        if not self.complete and not self.gpus:
            return "the log is cut off before its first GPU"
        if self.attached is not None and len(self.gpus) < self.attached:
            return f"the log announces {self.attached} GPUs and holds {len(self.gpus)}"
        return "" if self.complete else f"the log is cut off behind its last GPU: {count} are here"


def label(text: str) -> str:
    """Return a text label in normal form: `GPU T.Limit Temp` is `gpu_t_limit_temp`."""
    return _NOT_A_WORD.sub("_", text.lower()).strip("_")


def unreachable(text: str) -> dict[str, str]:
    """Return the GPUs that could not be opened: message by bus id, or by `GPU 3`."""
    return {
        match["bus"] or f"GPU {match['index']}": match["message"].strip()
        for match in _UNREACHABLE.finditer(text)
        if match["bus"] or match["index"]
    }
