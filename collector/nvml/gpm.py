"""GPU Performance Monitoring: rates of hardware counters between two samples, on Hopper and newer.

After an XID the counters of a GPU may stop for good. So zeros after a failure are reported as
errors, not as idleness, until another number is read.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from ctypes import byref, c_uint

from collector.nvml.binding import Code, Function, Handle, gpm_request, gpm_samples, gpm_supported, once
from collector.nvml.capability import Cell
from telemetry.catalogue.nvml import Gpm
from telemetry.gap import GAP, Gap

FIRST_OF_TRAFFIC = 20
"""Ids from here on count bytes of PCI Express and links, which go on when the counters of activity have stopped."""
SHORTEST = 0.1
"""Minimum seconds between two samples, by NVML's documentation."""
_METRIC = struct.Struct("4xId24x")
"""Code and number of a metric. Access by name would go through pynvml in Python each time."""
_ABSENT = {
    int(Code.NOT_SUPPORTED): GAP[Gap.NOT_SUPPORTED],
    int(Code.INVALID_ARGUMENT): GAP[Gap.NOT_SUPPORTED],
    int(Code.NO_PERMISSION): GAP[Gap.NO_PERMISSION],
}


def gpm_ids(cells: Iterable[Cell]) -> list[int]:
    """Return the ids of the GPM metrics that some cells may be read from."""
    return sorted({each.id for cell in cells for each in cell.alternatives if isinstance(each, Gpm)})


class GpmReader:
    """Two samples of one GPU or MIG instance, a reading apart, and the metrics between them."""

    def __init__(self, handle: Handle, ids: list[int], instance: int | None = None) -> None:
        """Prepare the reader of a GPU, or of one of its MIG GPU instances."""
        samples = gpm_samples() if gpm_supported(handle) else None
        self.supported = samples is not None
        self.suspect = False
        """Whether a failure came before: zeros are errors until another number is read."""
        self._ids = ids
        if samples is None:
            return
        self._handle = handle
        self._older, self._newer = samples
        self._sampled_at = -math.inf
        self._answer: tuple[int, dict[int, float]] = (Code.SUCCESS, {})
        self._has_sample = False
        self._instance = instance
        self._request, self._answers, self._sample_call, self._compute = gpm_request(
            ids, of_instance=instance is not None
        )

    def read(self, now: float) -> tuple[int, dict[int, float]]:
        """Sample the counters; return NVML's code, and for each id its number or gap.

        `now` is in seconds on a monotonic clock.
        """
        if now == self._sampled_at:
            return self._answer  # the tick reads again, because a metric had to be skipped
        if now - self._sampled_at < SHORTEST:
            return Code.SUCCESS, dict.fromkeys(self._ids, GAP[Gap.NOT_READ])
        self._answer = self._read(now)
        return self._answer

    def _read(self, now: float) -> tuple[int, dict[int, float]]:
        self._older, self._newer = self._newer, self._older
        code = self._sample(self._sample_call)
        had, self._has_sample = self._has_sample, code == Code.SUCCESS
        self._sampled_at = now
        if code == Code.SUCCESS and had:
            self._request.sample1, self._request.sample2 = self._older, self._newer
            code = self._compute(byref(self._request))
        elif code == Code.SUCCESS:
            return code, dict.fromkeys(self._ids, GAP[Gap.NOT_READ])
        if code != Code.SUCCESS:
            self.suspect = True
            return code, dict.fromkeys(self._ids, GAP[Gap.ERROR])
        return code, self._numbers()

    def _sample(self, call: Function) -> int:
        if self._instance is not None:
            return call(self._handle, c_uint(self._instance), self._newer)
        return call(self._handle, self._newer)

    def close(self) -> None:
        """Give the samples back."""
        if self.supported:
            for sample in (self._older, self._newer):
                once("nvmlGpmSampleFree", sample)
            self.supported = False

    def _numbers(self) -> dict[int, float]:
        numbers: dict[int, float] = {}
        answers = _METRIC.iter_unpack(self._answers)
        for number, (code, value) in zip(self._ids, answers, strict=True):
            whole = not code and math.isfinite(value)
            numbers[number] = value if whole else _ABSENT.get(code, GAP[Gap.ERROR])
        if any(value > 0 for number, value in numbers.items() if number < FIRST_OF_TRAFFIC):
            self.suspect = False
        elif self.suspect:
            return {number: value if value > 0 else GAP[Gap.ERROR] for number, value in numbers.items()}
        return numbers
