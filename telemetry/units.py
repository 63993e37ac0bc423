"""Rates that a check measures, in words."""

from __future__ import annotations


def rate_text(name: str, value: float) -> str:
    """Return a measured rate: `182 GB/s`, of `gemm` `612 TFLOP/s`."""
    if name == "gemm":
        return f"{value / 1e12:.3g} TFLOP/s"
    return f"{value / 1e9:.3g} GB/s"
