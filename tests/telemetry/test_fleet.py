"""The fleet holds the newest readings of every device, and never an old one as current."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.devices import Gpu, Link
from telemetry.fleet import Fleet, Matrix, gaps_of
from telemetry.gap import Gap
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, SCHEMA


def inventory(node: str, gpus: int, links: int = 0) -> Inventory:
    """A node with plain GPUs."""
    return Inventory(
        node=node,
        gpus=tuple(Gpu(uuid=f"{node}-{n}", index=n, name="X") for n in range(gpus)),
        links=tuple(Link(gpu=f"{node}-0", number=n) for n in range(links)),
    )


def store(fleet: Fleet, node: str, value: float, now: float, block: int = GPU_FAST) -> None:
    """Store one value in every column of a node's GPUs."""
    rows = fleet.nodes[node].rows[Table.GPU]
    shape = rows.stop - rows.start
    kind = SCHEMA.blocks[block]
    fleet.store(
        block,
        rows,
        np.full((shape, len(kind.gauges)), value, np.float32),
        np.full((shape, len(kind.counters)), value, np.float64),
        now,
    )


def test_what_was_never_read_is_a_gap() -> None:
    """Not zero."""
    fleet = Fleet()
    fleet.place(inventory("a", 2))
    assert gaps_of(fleet.column("gpu_power_watts", 0.0)).tolist() == [Gap.NOT_READ] * 2


def test_a_value_is_current_for_three_intervals() -> None:
    """Then it is the gap `stale`, on the lane's own pace."""
    fleet = Fleet()
    node = fleet.place(inventory("a", 1))
    fleet.set_intervals(node, 1.0, 15.0)
    store(fleet, "a", 7.0, now=100.0)
    store(fleet, "a", 8.0, now=100.0, block=GPU_SLOW)
    assert fleet.column("gpu_power_watts", 103.0).tolist() == [7.0]
    assert gaps_of(fleet.column("gpu_power_watts", 103.1)).tolist() == [Gap.STALE]
    assert gaps_of(fleet.column("gpu_energy_joules_total", 103.1)).tolist() == [Gap.STALE]
    assert fleet.column("gpu_power_limit_watts", 145.0).tolist() == [8.0]
    assert gaps_of(fleet.column("gpu_power_limit_watts", 145.1)).tolist() == [Gap.STALE]


def test_an_inventory_with_the_same_devices_keeps_rows_and_readings() -> None:
    """Only the facts about them change."""
    fleet = Fleet()
    fleet.place(inventory("a", 2))
    store(fleet, "a", 7.0, now=0.0)
    again = inventory("a", 2)
    fleet.place(again)
    assert fleet.column("gpu_power_watts", 0.0).tolist() == [7.0, 7.0]
    assert fleet.nodes["a"].inventory is again


def test_a_lost_gpu_that_leaves_the_inventory_takes_no_other_ones_readings() -> None:
    """New rows start unread."""
    fleet = Fleet()
    fleet.place(inventory("a", 3))
    store(fleet, "a", 7.0, now=0.0)
    fleet.place(inventory("a", 2))
    values = fleet.column("gpu_power_watts", 0.0)
    assert all(gaps_of(values) == Gap.NOT_READ)
    assert set(fleet.by_uuid) == {"a-0", "a-1"}


def test_a_node_that_changes_its_size_again_and_again_needs_the_rows_of_its_largest() -> None:
    """A single node could otherwise fill the matrix: 256 sizes are 32,896 rows."""
    fleet = Fleet()
    fleet.place(inventory("a", 2, 3))
    for size in [*range(1, 257), *range(256, 0, -1), *range(1, 257, 7)]:
        fleet.place(inventory("b", size, size))
    fleet.place(inventory("c", 4, 4))
    assert fleet.size(Table.GPU) <= 2 + 256 + 4
    assert fleet.size(Table.LINK) <= 3 + 256 + 4


def test_an_unknown_metric_is_an_error() -> None:
    """Not an empty column."""
    with pytest.raises(KeyError):
        Fleet().column("gpu_powr_watts", 0.0)


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 4), st.integers(0, 3)), max_size=30))
def test_rows_never_overlap_and_always_name_their_device(steps: list[tuple[str, int, int]]) -> None:
    """Whatever nodes come, change and go (zero GPUs and zero links: the node is removed)."""
    fleet = Fleet()
    for name, gpus, links in steps:
        if gpus == 0 and links == 0 and name in fleet.nodes:
            fleet.remove(name)
        else:
            fleet.place(inventory(name, gpus, links))
            store(fleet, name, float(ord(name)), now=0.0)
    power = fleet.column("gpu_power_watts", 0.0)
    taken: set[int] = set()
    for name, node in fleet.nodes.items():
        rows = range(node.rows[Table.GPU].start, node.rows[Table.GPU].stop)
        assert len(rows) == len(node.inventory.gpus)
        assert taken.isdisjoint(rows)
        taken.update(rows)
        for row, gpu in zip(rows, node.inventory.gpus, strict=True):
            assert fleet.gpus[row] == (name, gpu)
            assert fleet.by_uuid[gpu.uuid] == row
            assert power[row] == ord(name)
        for offset, link in enumerate(node.inventory.links):
            assert fleet.devices[Table.LINK][node.rows[Table.LINK].start + offset] == (name, link)
    assert {row for row, _ in fleet.rows(Table.GPU)} == taken
    free = {row for rows in fleet.free[Table.GPU] for row in range(rows.start, rows.stop)}
    assert free == set(range(fleet.size(Table.GPU))) - taken
    assert all(fleet.gpus[row] is None for row in range(len(fleet.gpus)) if row not in taken)


def test_a_column_is_a_copy_unless_it_is_borrowed_for_one_instant() -> None:
    """A borrowed one can't be written to, and holds gaps in place of what is stale."""
    fleet = Fleet()
    for name in "ab":
        fleet.set_intervals(fleet.place(inventory(name, 1)), 1.0, 15.0)
        store(fleet, name, 7.0, now=100.0)
    own = fleet.column("gpu_power_watts", 100.0)
    own[:] = 1.0
    borrowed = fleet.column("gpu_power_watts", 100.0, {})
    assert borrowed.tolist() == [7.0, 7.0]
    with pytest.raises(ValueError, match="read-only"):
        borrowed[0] = 1.0
    store(fleet, "b", 8.0, now=104.0)
    late = fleet.column("gpu_power_watts", 104.0, {})
    assert gaps_of(late).tolist() == [Gap.STALE, 255]
    assert late[1] == 8.0
    assert fleet.reading("gpu_power_watts", 0, 103.0) == 7.0, "a stale reading stays in the fleet"


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_readings_stay_where_they_are_while_a_fleet_grows(sizes: list[int]) -> None:
    """Matrices that grow keep the readings of every row."""
    fleet = Fleet()
    for number, size in enumerate(sizes):
        fleet.place(inventory(f"n{number}", size))
        store(fleet, f"n{number}", float(number), now=100.0)
    expected = [float(number) for number, size in enumerate(sizes) for _ in range(size)]
    assert fleet.column("gpu_power_watts", 100.0).tolist() == expected
    assert fleet.column("gpu_energy_joules_total", 100.0).tolist() == expected


def test_nodes_for_which_there_is_room_are_placed_without_a_copy() -> None:
    """As those that a restart restores, beside one that is there."""
    fleet, coming = Fleet(), [inventory(f"n{number}", 8, 16) for number in range(50)]
    fleet.place(inventory("first", 8))
    fleet.reserve(coming)
    before = [matrix.gauges for matrix in fleet.matrices]
    for each in coming:
        fleet.place(each)
    assert all(matrix.gauges is its for matrix, its in zip(fleet.matrices, before, strict=True))
    assert fleet.size(Table.GPU) == 51 * 8 <= len(fleet.matrices[GPU_FAST].seen)


def test_a_fleet_that_grows_is_copied_a_few_times_and_has_little_room_to_spare() -> None:
    matrix = Matrix.of(SCHEMA.blocks[GPU_FAST])
    copied, before = 0, len(matrix.seen)
    for rows in range(8, 20_000, 8):
        matrix.grow(rows)
        if len(matrix.seen) != before:
            copied, before = copied + before, len(matrix.seen)
            assert before % 32 == 16, "an odd number of lines of a cache lies between two columns"
        assert rows <= before
    assert copied <= 9 * rows
    assert before <= 1.125 * rows + 64


def test_a_node_that_has_left_keeps_what_was_known_of_it() -> None:
    """Its row is another's now."""
    fleet = Fleet()
    gone = fleet.place(inventory("a", 1))
    gone.online, gone.seen, gone.seq = True, 5.0, 7
    fleet.remove("a")
    other = fleet.place(inventory("b", 1))
    assert other.row == gone.row
    assert (other.online, other.seen, other.seq) == (False, -np.inf, -1)
    other.seen = 9.0
    assert (gone.online, gone.seen, gone.seq) == (True, 5.0, 7)
