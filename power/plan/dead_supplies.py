"""Supplies that a plan supposes dead: the others of the machine draw their part, each through its own cord."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from power.site.config import CordConfig, NodeConfig, PowerConfig
from power.site.cords import supply_numbers
from power.site.layout import SiteLayout
from power.site.machine import Machine
from telemetry.errors import ConfigError

_NAME = re.compile(r"(.+)\.psu-(\d+)")
"""A supply, as `--lose` names it: `dgx-01.psu-3`."""


def separated(lose: Sequence[str], site: PowerConfig) -> tuple[dict[str, set[int]], list[str]]:
    """Return the dead supplies by node, and what else is lost."""
    dead: dict[str, set[int]] = {}
    others = []
    nodes = {*site.nodes, *(node for one in site.circuits.values() for node in one.nodes)}
    for name in lose:
        match = _NAME.fullmatch(name)
        if match is not None and match[1] in nodes:
            dead.setdefault(match[1], set()).add(int(match[2]))
        else:
            others.append(name)
    return dead, others


def check(dead: Mapping[str, set[int]], machines: Mapping[str, Machine]) -> None:
    """Refuse a supply that a machine does not have. Raises `ConfigError`."""
    for node, numbers in dead.items():
        most = machines[node].supplies
        if wrong := sorted(number for number in numbers if not 1 <= number <= most):
            raise ConfigError(
                "--lose",
                f"there is no {node}.psu-{wrong[0]}: {node} has {most} supplies",
                f"Write {node}.psu-1 to {node}.psu-{most}; `supply.count` says how many there are.",
            )


def unplugged(site: PowerConfig, dead: Mapping[str, set[int]]) -> PowerConfig:
    """Return a site in which no cord goes to a dead supply. Cords without numbers of supplies stay: what is left draws
    through them."""
    nodes = dict(site.nodes)
    for node, numbers in dead.items():
        spec = nodes.get(node, NodeConfig())
        cords = tuple(cord for one in spec.cords for cord in _left(node, one, numbers))
        if cords:
            total = sum(cord.share or 0 for cord in cords)
            if total:
                cords = tuple(replace(cord, share=(cord.share or 0) / total) for cord in cords)
            nodes[node] = replace(spec, cords=cords)
    return replace(site, nodes=nodes)


def unnumbered(layout: SiteLayout, dead: Mapping[str, set[int]]) -> list[str]:
    """Return notices of machines with dead supplies of which nobody says through which cord they drew."""
    found = []
    for node, numbers in dead.items():
        cords = [one for one in layout.cords if one.machine == node]
        if len(cords) > 1 and len(numbers) < layout.machines[node].supplies and not any(one.supplies for one in cords):
            found.append(
                f'--lose {node}.psu-{min(numbers)}: its cords don\'t say which supplies they feed, so that each keeps its part of the load; write psu in them (psu = "1-3")'
            )
    return found


def _left(node: str, cord: CordConfig, dead: set[int]) -> Iterator[CordConfig]:
    """Yield the cord into the supplies that are left; in two parts where one between is dead."""
    own = supply_numbers(f"nodes.{node}.cords", cord.psu)
    if own is None or not dead & set(own):
        yield cord
        return
    alive = [number for number in own if number not in dead]
    runs: list[list[int]] = []
    for number in alive:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    for run in runs:
        share = None if cord.share is None else cord.share * len(run) / len(own)
        yield replace(cord, psu=f"{run[0]}-{run[-1]}", share=share)
