"""Faults of the wire: latency, loss, slices, narrow links, half-open and kicked connections."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.endtoend.cluster import NODES
from tests.faults.chaos import CLEAR, Weather
from tests.faults.plant import PARTS, Plant
from tests.faults.record import SLACK, Observe, fault
from tests.kit.waiting import wait_until

NOTICED_WITHIN = 15.0
"""Seconds in which a dead connection must be noticed: one and a half of the keepalive."""
GRACE = 2.0
"""Seconds more that a loaded machine is given."""


@fault("7", "each side notices within 15 s, connects anew, nothing is lost")
def test_half_open_connections(plant: Plant, observe: Observe) -> None:
    """The connections of the aggregator and of a collector become black holes: no reset, no FIN."""
    victims = [plant.chaos[part] for part in ("aggregator", "dgx-01")]
    for chaos in victims:
        chaos.swallow()
    wait_until(lambda: all(chaos.noticed for chaos in victims), "both noticed")
    times = [chaos.noticed[0] for chaos in victims]
    assert max(times) < NOTICED_WITHIN + GRACE, times
    account = plant.finish()
    assert account.lost == 0
    observe(f"noticed after {times[0]:.1f} s (aggregator), {times[1]:.1f} s (collector); {account}")


@fault("8", "1 Hz and more is kept, lag is reported, nothing is lost")
@pytest.mark.parametrize("trip", [0.005, 0.05, 0.5])
def test_latency(plant: Plant, observe: Observe, trip: float) -> None:
    """Round trips of 5, 50 and 500 ms with as much jitter, one chunk in a hundred stalls for 1 s."""
    weather = Weather(latency=trip / 2, jitter=trip / 2, stall_chance=0.01, stall=1.0)
    for chaos in plant.chaos.values():
        chaos.weather = weather
    took = plant.wait_for_more(30)
    assert took < 15 * SLACK, "two nodes bring less than one frame a second each"
    lags = {node: plant.get(f"/api/v1/nodes/{node}") for node in NODES}
    assert all(page is not None for page in lags.values())
    count = plant.sample("kilowatch_aggregator_lag_seconds_count")
    lag = plant.sample("kilowatch_aggregator_lag_seconds_sum") / count
    assert lag > trip / 2, "the lag that is told is less than what the wire alone takes"
    account = plant.finish()
    assert account.lost == 0
    observe(
        f"round trip {1000 * trip:g} ms: {30 / took:.1f} frames a second of both nodes, mean lag {lag:.2f} s; {account}"
    )


@fault("9", "live frames are shed on the wire and come from the ring afterwards; nothing is lost")
def test_narrow_link(plant: Plant, observe: Observe) -> None:
    """The link of one node carries a tenth of what its frames need."""
    narrow = plant.chaos["dgx-01"]
    narrow.weather = Weather(bytes_per_second=1000)
    took = plant.wait_for_more(30)  # the other node goes on
    assert took < 6 * SLACK, "five frames a second of the other node do not come"
    narrow.weather = CLEAR
    before = plant.backfilled()
    plant.wait_for_whole()
    account = plant.finish()
    assert account.lost == 0
    shed = account.backfilled["dgx-01"]
    assert shed > 0, "all frames of the narrow link have come live"
    assert account.backfilled["dgx-02"] <= before
    observe(
        f"30 frames in {took:.1f} s, mostly of the other node; {shed} of the narrow link came from the ring; {account}"
    )


@fault("10", "the same readings to the last bit")
def test_slices_and_lumps(plant: Plant, observe: Observe) -> None:
    """Segments of one byte on some wires, many packets in one segment on others, then swapped."""
    sliced, lumped = Weather(sliced=True), Weather(coalesce=0.4)
    for chaos, weather in zip(plant.chaos.values(), (sliced, lumped, sliced), strict=True):
        chaos.weather = weather
    plant.wait_for_more(20)
    for chaos, weather in zip(plant.chaos.values(), (lumped, sliced, lumped), strict=True):
        chaos.weather = weather
        chaos.reset()
    plant.wait_for_more(20)
    account = plant.finish()
    assert account.lost == 0
    observe(str(account))


@fault("12", "the pause between two tries grows; when it ends, nothing is lost")
def test_kicked_at_once(plant: Plant, observe: Observe) -> None:
    """Every part connects and is thrown out at once, as by a duplicate client id or an ACL."""
    began = time.monotonic()
    for part in PARTS:
        plant.chaos[part].weather = Weather(kick_after=0.1)
        plant.chaos[part].reset()
    wait_until(lambda: all(len(plant.chaos[part].accepted) >= 5 for part in PARTS), "kicks")
    tries = [len(plant.chaos[part].accepted) - 1 for part in PARTS]
    seconds = time.monotonic() - began
    # A loop without a pause would have made ten tries a second; twice as many as are usual is fine.
    assert all(count <= 10 + seconds for count in tries), (tries, seconds)
    # The bounds of the pauses double from half a second: with none, four tries are over at once.
    pauses = [_pauses(plant.chaos[part].accepted, began) for part in PARTS]
    assert sum(map(sum, pauses)) > 3.0, pauses
    account = plant.finish()
    assert account.lost == 0
    longest = max(map(max, pauses))
    observe(f"tries in {seconds:.1f} s: {tries} (aggregator, two collectors), longest pause {longest:.1f} s; {account}")


def _pauses(accepted: list[float], since: float) -> list[float]:
    """Seconds between connections that were made after a time."""
    times = [at for at in accepted if at >= since]
    return [later - at for at, later in itertools.pairwise(times)] or [0.0]
