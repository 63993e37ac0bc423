"""A wire that is cut on purpose, for one process: `wire.c`, compiled on the spot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.faults.disk import compiled

SOURCE = Path(__file__).with_name("wire.c")


class CutWire:
    """What stands between a process and some ports: without a proxy, which would cost time all the while."""

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        self._library, self._state = compiled(SOURCE, folder), folder / "wire"
        self._ports = ports
        self._state.write_bytes(b"0")

    @property
    def environment(self) -> dict[str, str]:
        """What a process must have in its environment to have this wire."""
        return {
            "LD_PRELOAD": str(self._library),
            "KILOWATCH_WIRE": str(self._state),
            "KILOWATCH_WIRE_PORTS": ",".join(map(str, self._ports)),
        }

    def be(self, *, cut: bool) -> None:
        """Cut it, or mend it, at once."""
        with self._state.open("r+b") as file:  # the page that the process has mapped
            file.write(b"1" if cut else b"0")
