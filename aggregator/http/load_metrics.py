"""Metrics of the load and of what is shed because of it."""

from __future__ import annotations

from aggregator.load.controller import PARTS, SIGNALS
from aggregator.load.shedding import Shedding
from telemetry.wire.exposition import COUNTER, GAUGE, PREFIX, Family, labels


def shed_family(shedding: Shedding) -> Family:
    """Return which parts are shed now."""
    samples = [(labels({"what": part}), float(shedding.sheds(part))) for part in PARTS]
    text = "1 while this is shed: history, viewers, device_metrics."
    return Family(f"{PREFIX}shed_active", text, GAUGE, samples)


def load_families(shedding: Shedding) -> list[Family]:
    """Return the step of the load controller, its measurements, and what was shed."""
    shown = [signal for signal in SIGNALS if signal.name in shedding.readings]
    return [
        Family(f"{PREFIX}shed_step", "Step of the load controller; 0 while nothing is shed.", GAUGE,
               [("", float(shedding.step))]),
        shed_family(shedding),
        Family(f"{PREFIX}shed_seconds_total", "Time for which this was shed.", COUNTER,
               [(labels({"what": part}), seconds) for part, seconds in shedding.seconds.items()]),
        Family(f"{PREFIX}shed_frames_total",
               "Frames stored as a mean only, until their node sends them again.", COUNTER,
               [("", float(shedding.frames))]),
        Family(f"{PREFIX}shed_frames_skipped_total",
               "Frames not decoded, because a newer one of their node was there.", COUNTER,
               [("", float(shedding.frames_skipped))]),
        Family(f"{PREFIX}shed_viewers_refused_total", "Viewers of the stream that were refused.",
               COUNTER, [("", float(shedding.viewers_refused))]),
        Family(f"{PREFIX}shed_pages_total", "Metrics pages of nodes served without devices.",
               COUNTER, [("", float(shedding.pages_reduced))]),
        Family(f"{PREFIX}shed_refill_ratio",
               "Share of the usual requests for missing frames that may be under way.", GAUGE,
               [("", shedding.refill)]),
        Family(f"{PREFIX}load_reading", "A measurement of the load: seconds, or a share.", GAUGE,
               [(labels({"what": signal.name}), shedding.readings[signal.name]) for signal in shown]),
        Family(f"{PREFIX}load_limit", "The measurement above which something is shed.", GAUGE,
               [(labels({"what": signal.name}), signal.high) for signal in SIGNALS]),
    ]  # fmt: skip
