"""Rates of the counters of GPUs' traffic, between their readings. Columns, a row a GPU; time is an argument."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

COUNTERS = (
    ("gpu_pcie_transmit_bytes_total", "gpu_pcie_receive_bytes_total"),
    ("gpu_nvlink_transmit_bytes_total", "gpu_nvlink_receive_bytes_total"),
)
"""Counters of each kind of traffic, which are added: of PCIe and of NVLink."""
LONGEST_SECONDS = 120.0
"""Seconds between two readings, or since one, beyond which a rate is not known."""


class TrafficRates:
    """Bytes a second of each row, by kind of traffic."""

    def __init__(self) -> None:
        self._bytes: Floats = np.full((1, len(COUNTERS)), np.nan)
        self._rates: Floats = np.full((1, len(COUNTERS)), np.nan)
        self._read_at: Floats = np.zeros(1)
        """When each row was read, monotonic seconds; 0 for one that never was."""

    def clear(self, row: int) -> None:
        """Forget what was read of a row: another GPU has it from now on."""
        if row < len(self._read_at):
            self._bytes[row] = self._rates[row] = np.nan
            self._read_at[row] = 0.0

    def update(self, counted: Floats, read_at: Floats, now: float) -> Floats:
        """Return the rates of all rows up to their newest readings; NaN where there is no rate. `counted`: bytes,
        shape (rows, kinds); `read_at`: when, 0 for a row that never was."""
        more = len(read_at) - len(self._read_at)
        if more > 0:
            nothing = np.full((more, len(COUNTERS)), np.nan)
            self._bytes = np.concatenate([self._bytes, nothing])
            self._rates = np.concatenate([self._rates, nothing])
            self._read_at = np.concatenate([self._read_at, np.zeros(more)])
        seconds = read_at - self._read_at
        new = seconds > 0
        near = new & (seconds <= LONGEST_SECONDS)
        grown = counted[new] - self._bytes[new]
        with np.errstate(invalid="ignore"):
            usable = (grown >= 0) & near[new][:, np.newaxis]  # a counter that fell was reset
            self._rates[new] = np.where(usable, grown / seconds[new][:, np.newaxis], np.nan)
        self._bytes[new] = counted[new]
        self._read_at[new] = read_at[new]
        self._rates[now - self._read_at > LONGEST_SECONDS] = np.nan
        return self._rates.copy()
