"""Several machines over several places: one after the other at the best place that is left, with those before it in."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from api.power import FitPlace, FitRequest, FitResult, FitSpread
from power.site.config import CordConfig, NodeConfig, PowerConfig

MOST_STEPS = 40
"""More machines than that are placed several at a time."""

Finder = Callable[[PowerConfig, FitRequest], FitResult]


def spread(site: PowerConfig, node: NodeConfig, asked: FitRequest, find: Finder) -> list[FitSpread]:
    """Return how many of the machines go to which feeds; fewer than asked for in all where no more have room.

    `find` returns the places of a site. What is shared above the places, panels, UPSs, budgets and losses, holds the
    machines that were placed before.
    """
    at_once, steps = max(1, asked.count // MOST_STEPS), list[tuple[FitPlace, int]]()
    left = asked.count
    while left:
        count = min(at_once, left)
        found = find(_with(site, node, steps), replace(asked, count=count, top=1)).places
        if not found or not found[0].fits:
            if count == 1:
                break
            at_once = 1
            continue
        steps.append((found[0], count))
        left -= count
    together: dict[tuple[str, ...], int] = {}
    for place, count in steps:
        together[tuple(place.feeds)] = together.get(tuple(place.feeds), 0) + count
    return [FitSpread(feeds=list(feeds), count=count) for feeds, count in together.items()]


def _with(site: PowerConfig, node: NodeConfig, steps: list[tuple[FitPlace, int]]) -> PowerConfig:
    nodes, number = dict(site.nodes), 0
    for place, count in steps:
        cords = tuple(CordConfig(circuit=name) for name in place.feeds)
        for _ in range(count):
            number += 1
            nodes[f"fit {number}"] = replace(node, cords=cords)
    return replace(site, nodes=nodes)
