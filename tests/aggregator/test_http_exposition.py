"""The vectorised page has the series of the plain one, and its numbers are as short."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aggregator.http.exposition import ExpositionPages, render
from telemetry.text.decimals import plain
from telemetry.wire import exposition
from tests.aggregator.fake_view import FakeView, inventory, readings

FLOATS = st.lists(st.floats(width=32, allow_nan=True), max_size=50)


@given(FLOATS)
def test_a_plain_number_is_the_same_float32(values: list[float]) -> None:
    """Gaps stay gaps, infinities stay infinite."""
    narrow = np.array(values, np.float32)
    assert np.array_equal(plain(narrow).astype(np.float32), narrow, equal_nan=True)


@given(st.lists(st.floats(2**-20, 2**40, width=32), min_size=1, max_size=50))
def test_a_plain_number_prints_as_short_as_numpy_prints_it(values: list[float]) -> None:
    """NumPy knows the shortest text of a float32."""
    narrow = np.array(values, np.float32)
    got = [repr(value) for value in plain(narrow).tolist()]
    for text, value in zip(got, narrow, strict=True):
        if value >= 1 << 24 or not float(value).is_integer():
            assert digits(text) <= digits(str(value))


def digits(text: str) -> int:
    """How many significant digits a number is written with."""
    mantissa = text.lower().partition("e")[0].replace(".", "").lstrip("0")
    return len(mantissa.rstrip("0"))


async def test_the_page_of_a_node_is_the_one_that_its_collector_would_show() -> None:
    """Same families, same series, same text."""
    view = FakeView()
    what = inventory("n1", gpus=3, links=2)
    view.add(inventory("n0"))
    view.add(what)
    await view.tick(4)
    node = view.fleet.nodes["n1"]
    page = render(ExpositionPages().snapshot(view.fleet, [node], view.now()))
    families = exposition.node_families(what, readings(what, 4), last_frame=node.sampled_at / 1e9)
    assert sorted(page.splitlines()) == sorted(exposition.render(families).splitlines())


async def test_the_page_of_many_nodes_is_that_of_each_with_families_joined() -> None:
    """A family stands on a page once: Prometheus refuses a second HELP."""
    view = FakeView()
    for name in ("n1", "n2", "n3"):
        view.add(inventory(name))
    await view.tick(0)
    pages, nodes = ExpositionPages(), list(view.fleet.nodes.values())
    whole = render(pages.snapshot(view.fleet, nodes, view.now())).splitlines()
    single = [render(pages.snapshot(view.fleet, [node], view.now())) for node in nodes]
    assert len(whole) == len(set(whole))
    assert set(whole) == {line for page in single for line in page.splitlines()}


async def test_labels_follow_an_inventory_that_changed() -> None:
    """What is kept between pages must not outlive what it was made from."""
    view, pages = FakeView(), ExpositionPages()
    view.add(inventory("n1", gpus=2))
    await view.tick(0)
    before = render(pages.snapshot(view.fleet, [view.fleet.nodes["n1"]], view.now()))
    view.add(inventory("n1", gpus=3))
    await view.tick(1)
    after = render(pages.snapshot(view.fleet, [view.fleet.nodes["n1"]], view.now()))
    assert b'kilowatch_gpu_power_watts{cluster="lab",node="n1",gpu="2"' not in before
    assert b'kilowatch_gpu_power_watts{cluster="lab",node="n1",gpu="2"' in after


async def test_a_block_that_is_stale_is_left_out_alone() -> None:
    """The slow lane lives 15 times longer than the fast one."""
    view = FakeView()
    view.add(inventory("n1"))
    await view.tick(0)
    node = view.fleet.nodes["n1"]
    view.monotonic += 10
    node.seen = view.monotonic  # frames go on, without the fast block of GPUs
    page = render(ExpositionPages().snapshot(view.fleet, [node], view.now()))
    assert b"kilowatch_gpu_power_watts" not in page
    assert b"kilowatch_gpu_power_limit_watts" in page
