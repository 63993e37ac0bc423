"""Errors of the main memory that its controllers count (EDAC), and the modules that have them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from collector.host.open_file import KeptFiles, read_small
from collector.host.parts import PartLog

MOST_CONTROLLERS = 32
"""Memory controllers whose files stay open."""
FEWEST_CORRECTED = 20
"""Corrected errors of a module of which one event tells; a few a day mean nothing."""
CORRECTED, UNCORRECTED = "node_edac_correctable_errors_total", "node_edac_uncorrectable_errors_total"


class MemoryErrors:
    """Reader of the counts. The modules of a controller are read where its count has changed."""

    def __init__(self, root: Path, parts: PartLog) -> None:
        self._folder = str(root / "sys/devices/system/edac/mc")
        self._parts = parts
        self._files = KeptFiles(MOST_CONTROLLERS * 2)
        self._before: dict[str, tuple[int, int]] = {}

    def counts(self) -> tuple[float, float]:
        """Return corrected and uncorrected errors. Raises `FileNotFoundError` where nobody counts."""
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in entries if re.match("mc[0-9]", entry.name)]
        if not names:  # no ECC, or no driver for it
            raise FileNotFoundError("no memory controller")
        corrected = uncorrected = 0
        for name in names:
            found = self._count(name, "ce_count"), self._count(name, "ue_count")
            if self._before.get(name) != found:
                self._before[name] = found
                self._read_modules(name)
            corrected, uncorrected = corrected + found[0], uncorrected + found[1]
        return float(corrected), float(uncorrected)

    def close(self) -> None:
        """Close all files."""
        self._files.close()

    def _count(self, controller: str, name: str) -> int:
        return int(self._files.read(f"{self._folder}/{controller}/{name}"))

    def _read_modules(self, controller: str) -> None:
        folder = f"{self._folder}/{controller}"
        for module in sorted(Path(folder).glob("dimm[0-9]*")):
            try:
                unit = read_small(f"{module}/dimm_label").decode(errors="replace").strip()
                unit = unit or f"{controller}/{module.name}"
                corrected = int(read_small(f"{module}/dimm_ce_count"))
                uncorrected = int(read_small(f"{module}/dimm_ue_count"))
            except (OSError, ValueError):  # its controller counts all the same
                continue
            self._parts.count(CORRECTED, unit, corrected, FEWEST_CORRECTED)
            self._parts.count(UNCORRECTED, unit, uncorrected)
