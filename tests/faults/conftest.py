"""Fixtures of the fault campaign: seeds, and a place to write what was observed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import Mosquitto
from tests.faults.plant import Plant
from tests.faults.record import SEEDS, Observe


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each scenario once for each seed."""
    if "seed" in metafunc.fixturenames:
        known = getattr(metafunc.function, "fault", None)
        metafunc.parametrize("seed", range(1, 2 if known and known.once else SEEDS + 1))


@pytest.fixture
def observe(request: pytest.FixtureRequest, record_property: Callable[[str, object], None], seed: int) -> Observe:
    """Write what was observed where `tests.faults.report` finds it."""
    function = request.function
    record_property("number", function.fault.number)
    record_property("expected", function.fault.expected)
    record_property("scenario", (function.__doc__ or "").splitlines()[0])
    record_property("seed", seed)
    return lambda text: record_property("observed", text)


@pytest.fixture
def plant(tmp_path: Path, mosquitto: Mosquitto, seed: int) -> Iterator[Plant]:
    """Two nodes and an aggregator on mosquitto, each behind a proxy of its own."""
    with Plant(tmp_path, mosquitto, seed) as plant:
        plant.start_all()
        yield plant
