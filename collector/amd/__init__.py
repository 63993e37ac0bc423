"""AMD's driver as a source of readings: `AmdSource`.

`source` runs in the collector (with `collector.probed`); `driver`, `gpu` and their imports run in the probe
process. The files of `amdgpu` in sysfs are read first; `library` adds what only libamd_smi says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collector.amd.source import AmdSource

__all__ = ["AmdSource"]


if not TYPE_CHECKING:  # a type checker would accept any name because of it

    def __getattr__(name: str) -> object:
        """Import the source on first use: the probe does not need asyncio (10 MB)."""
        if name == "AmdSource":
            from collector.amd.source import AmdSource  # noqa: PLC0415

            return AmdSource
        raise AttributeError(name)
