"""Limits of the elements of a site in watts and volt-amperes: of transformers, UPSs and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from power.network.flow import Ints
from power.site.circuit import Circuit, ElementKind
from power.site.layout import SiteLayout
from power.wiring import Flags, Floats


@dataclass(frozen=True, slots=True)
class ElementLimits:
    """Limits; arrays over elements, infinite without one."""

    watts: Floats
    volt_amps: Floats
    modules: Ints
    """Modules that carry the load together; 1 where an element is one."""
    shown: tuple[tuple[int, int], ...]
    """Rows of the network, with the transformer or source whose limits show there."""

    @property
    def limited(self) -> Flags:
        """Return which elements have a limit."""
        return _limited(self.watts, self.volt_amps)


def _limited(watts: Floats, volt_amps: Floats) -> Flags:
    return np.isfinite(np.minimum(watts, volt_amps))


def limits_of_elements(
    layout: SiteLayout, circuits: Sequence[Circuit], beside: Mapping[str, int], sources: Sequence[Sequence[int]]
) -> ElementLimits:
    """Return the limits of a layout. `beside`: numbers of the elements beside the tree, which follow the circuits;
    `sources`: those of them that can feed each circuit."""
    count = len(circuits) + len(beside)
    watts = np.full(count, np.inf)
    volt_amps, modules = watts.copy(), np.ones(count, dtype=np.int64)
    for number, circuit in enumerate(circuits):
        watts[number], volt_amps[number] = circuit.limit_watts, circuit.limit_volt_amps
        modules[number] = circuit.modules
    for name, number in beside.items():
        source, ups = layout.site.sources.get(name), layout.site.ups.get(name)
        if source is not None:
            watts[number] = np.inf if source.kw is None else 1000 * source.kw
            volt_amps[number] = np.inf if source.kva is None else 1000 * source.kva
        elif ups is not None:
            watts[number], modules[number] = ups.watts, ups.modules
            volt_amps[number] = ups.volt_amps or ups.watts / 0.9
    limited = _limited(watts, volt_amps)
    shown = tuple(
        (row, element)
        for row, circuit in enumerate(circuits)
        for element in (row, *sources[row])
        if limited[element] and circuit.kind is not ElementKind.UPS
    )
    return ElementLimits(watts, volt_amps, modules, shown)
