"""NVIDIA's driver as a source of readings: `NvmlSource`.

`source` runs in the collector (with `collector.probed`); `driver`, `gpu`, `readings` and their imports
run in the probe process. Only `binding` imports
pynvml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collector.nvml.source import NvmlSource

__all__ = ["NvmlSource"]


if not TYPE_CHECKING:  # a type checker would accept any name because of it

    def __getattr__(name: str) -> object:
        """Import the source on first use: the probe does not need asyncio (10 MB)."""
        if name == "NvmlSource":
            from collector.nvml.source import NvmlSource  # noqa: PLC0415

            return NvmlSource
        raise AttributeError(name)
