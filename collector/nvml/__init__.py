"""NVIDIA's driver as a source of readings: `NvmlSource`.

`source`, `roster`, `edges`, `states` and `topology` run in the collector; `driver`, `gpu`,
`readings` and what they use run in the probe process, and `binding` alone knows pynvml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collector.nvml.source import NvmlSource

__all__ = ["NvmlSource"]


if not TYPE_CHECKING:  # a type checker would take it as a promise of any name at all

    def __getattr__(name: str) -> object:
        """Load the source when it is asked for: the probe has no use for asyncio (10 MB)."""
        if name == "NvmlSource":
            from collector.nvml.source import NvmlSource  # noqa: PLC0415

            return NvmlSource
        raise AttributeError(name)
