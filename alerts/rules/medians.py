"""Medians and spreads of groups of rows, with what is known of further members of a group that have no row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from alerts.rules.row_memory import Flags, Floats, Index


class Others(NamedTuple):
    """Values of members of groups that have no row here."""

    values: Floats
    groups: Index
    weights: Index
    """Number of members that each value stands for."""


def medians(
    values: Floats, groups: Index, count: int, there: Flags, others: Others | None = None
) -> tuple[Floats, Index]:
    """Return the median of each group, and its size."""
    rows = np.flatnonzero(there)
    if others is not None and len(others.values):
        return _weighted(values, groups, count, rows, others)
    order = np.lexsort((values[rows], groups[rows]))
    ranked = values[rows][order]
    size = np.bincount(groups[rows], minlength=count)
    first = np.cumsum(size) - size
    median = np.full(count, np.nan, values.dtype)  # compared in the reading's own precision
    some = size > 0
    low = (first + (size - 1) // 2)[some]
    high = (first + size // 2)[some]
    median[some] = (ranked[low].astype(np.float64) + ranked[high]) / 2
    return median, size


def _weighted(values: Floats, groups: Index, count: int, rows: Index, others: Others) -> tuple[Floats, Index]:
    """Return what `medians` would if each of the others were there as often as its weight says."""
    its = np.concatenate([values[rows], others.values.astype(values.dtype, copy=False)])
    where = np.concatenate([groups[rows], others.groups])
    weights = np.concatenate([np.ones(len(rows), np.intp), others.weights])
    order = np.lexsort((its, where))
    ranked, upto = its[order], np.cumsum(weights[order])
    size = np.zeros(count, np.intp)
    np.add.at(size, where, weights)
    first = np.cumsum(size) - size
    median = np.full(count, np.nan, values.dtype)
    some = size > 0
    low = np.searchsorted(upto, (first + (size - 1) // 2)[some], side="right")
    high = np.searchsorted(upto, (first + size // 2)[some], side="right")
    median[some] = (ranked[low].astype(np.float64) + ranked[high]) / 2
    return median, size


def robust(
    values: Floats, groups: Index, count: int, there: Flags, others: Others | None = None
) -> tuple[Floats, Floats, Index]:
    """Return median, median absolute deviation and size of each group."""
    middle, size = medians(values, groups, count, there, others)
    if others is not None:
        others = others._replace(values=np.abs(others.values - middle[others.groups]))
    with np.errstate(invalid="ignore"):
        spread, _ = medians(np.abs(values - middle[groups]), groups, count, there, others)
    return middle, spread, size
