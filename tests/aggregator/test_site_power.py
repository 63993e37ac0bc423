"""The site's power inputs: what members say, and what is not heard because of ourselves."""

from __future__ import annotations

from dataclasses import fields

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.electrical.fleet_power import FleetPowerReader
from aggregator.site import node_power
from aggregator.site.node_power import COLUMNS, GroupSpan, NodePower, NodePowerSender, decode, encode, layout_of
from aggregator.site.site_power import HEARD_SECONDS, SitePower
from power.live.inputs import PowerInputs
from telemetry.fleet import Fleet
from telemetry.wire.topics import shard_of
from tests.aggregator.fake_view import inventory

MACHINES = tuple(f"node{number}" for number in range(40))
GROUPS = sorted({shard_of(name) for name in MACHINES})
FLEET = Fleet()


def names_in(group: str) -> tuple[str, ...]:
    return tuple(name for name in MACHINES if shard_of(name) == group)


def message(
    group: str, watts: float, number: int = 0, epoch: int = 1, session: int = 1, *, named: bool = True
) -> bytes:
    """What a member says of a group whose GPUs all draw so many watts."""
    names = names_in(group)
    column = np.full(len(names), watts, "<f4").tobytes()
    return encode(
        NodePower(
            session,
            number,
            (GroupSpan(group, epoch, layout_of(names), len(names)),),
            dict.fromkeys(COLUMNS, column),
            names if named else None,
        )
    )


def all_heard(watts: float, now: float, number: int = 0) -> SitePower:
    """A site that has heard of every group."""
    site = SitePower(MACHINES, 0.0)
    for group in GROUPS:
        assert site.receive(message(group, watts, number), now)
    return site


def test_columns_are_the_arrays_of_the_inputs() -> None:
    arrays = {
        field.name
        for field in fields(PowerInputs)
        if isinstance(getattr(PowerInputs.unknown(1), field.name), np.ndarray)
    }
    assert arrays == set(COLUMNS)


def test_what_members_say_is_what_the_circuits_are_computed_from() -> None:
    found = all_heard(700.0, 1.0).read(FLEET, 1.5)
    assert found.gpu_watts.tolist() == [700.0] * len(MACHINES)
    assert found.module_scope.all()
    assert found.unheard is not None
    assert not found.unheard.any()


def test_a_lower_epoch_is_dropped_and_counted() -> None:
    site = all_heard(100.0, 1.0)
    assert site.receive(message(GROUPS[0], 200.0, epoch=3), 1.1)
    assert not site.receive(message(GROUPS[0], 999.0, number=50, epoch=2, session=2), 1.2)
    assert not site.receive(message(GROUPS[0], 999.0, number=0, epoch=3), 1.2)
    assert site.receive(message(GROUPS[0], 300.0, number=0, epoch=3, session=9), 1.3)  # restarted
    assert (site.counters.lower_epoch, site.counters.out_of_order) == (1, 1)
    rows = [MACHINES.index(name) for name in names_in(GROUPS[0])]
    assert set(site.read(FLEET, 1.4).gpu_watts[rows].tolist()) == {300.0}


def test_a_fence_is_known_before_the_first_message_of_the_new_holder() -> None:
    site = SitePower(MACHINES, 0.0)
    site.fence(GROUPS[0], 7)
    assert not site.receive(message(GROUPS[0], 1.0, epoch=6), 0.1)
    assert site.receive(message(GROUPS[0], 1.0, epoch=7), 0.1)


def test_a_group_that_is_not_heard_holds_its_values_then_falls_silent_and_is_named() -> None:
    site = all_heard(700.0, 10.0)
    gone, rest = GROUPS[0], GROUPS[1:]
    rows = [MACHINES.index(name) for name in names_in(gone)]
    for tick in range(1, 31):
        now = 10.0 + tick
        for group in rest:
            site.receive(message(group, 700.0, tick), now)
        found = site.read(FLEET, now)
        assert found.unheard is not None
        assert set(np.flatnonzero(found.unheard)) == (set(rows) if tick > HEARD_SECONDS else set())
        assert set(found.gpu_watts.tolist()) == {700.0}
        # The last message said 700 s (of every column): from 15 s on its age is added.
        assert set(found.silent_seconds[rows]) == {700.0 + (tick if tick > 15 else 0)}
    assert site.unheard_groups(40.0) == {gone: 30.0}
    site.receive(message(gone, 650.0, 99), 41.0)
    back = site.read(FLEET, 41.0)
    assert back.unheard is not None
    assert not back.unheard[rows].any()


def test_a_group_that_was_never_heard_is_unheard_soon_after_the_start() -> None:
    site = SitePower(MACHINES, started=100.0)
    early, late = site.read(FLEET, 101.0), site.read(FLEET, 104.0)
    assert early.unheard is not None
    assert late.unheard is not None
    assert not early.unheard.any()
    assert late.unheard.all()
    assert np.isnan(late.gpu_watts).all(), "unknown, and not 0"


def test_columns_without_names_wait_for_the_names() -> None:
    site = SitePower(MACHINES, 0.0)
    assert not site.receive(message(GROUPS[0], 1.0, named=False), 0.1)
    assert site.counters.unnamed == 1
    assert site.receive(message(GROUPS[0], 1.0, 1), 0.2)
    assert site.receive(message(GROUPS[0], 2.0, 2, named=False), 0.3)


def test_a_node_that_its_member_no_longer_has_counts_as_never_heard() -> None:
    group = max(GROUPS, key=lambda name: len(names_in(name)))
    names = names_in(group)
    site = SitePower(MACHINES, 0.0)
    site.receive(message(group, 5.0), 0.1)
    left = names[1:]
    column = np.full(len(left), 6.0, "<f4").tobytes()
    span = GroupSpan(group, 1, layout_of(left), len(left))
    fewer = NodePower(1, 1, (span,), dict.fromkeys(COLUMNS, column), left)
    assert site.receive(encode(fewer), 0.2)
    found = site.read(FLEET, 0.3)
    assert np.isnan(found.gpu_watts[MACHINES.index(names[0])])
    assert np.isinf(found.silent_seconds[MACHINES.index(names[0])])


def test_unknown_columns_of_a_later_release_are_left_out() -> None:
    names = names_in(GROUPS[0])
    column = np.ones(len(names), "<f4").tobytes()
    columns = {**dict.fromkeys(COLUMNS, column), "later": b"x"}
    span = GroupSpan(GROUPS[0], 1, layout_of(names), len(names))
    payload = encode(NodePower(1, 0, (span,), columns, names))
    assert SitePower(MACHINES, 0.0).receive(payload, 0.1)


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 255))
def test_no_bytes_whatever_raise_or_change_a_value(noise: bytes, at: int, byte: int) -> None:
    site = all_heard(1.0, 0.0)
    before = site.read(FLEET, 0.5).gpu_watts
    site.receive(noise, 0.1)
    np.testing.assert_array_equal(site.read(FLEET, 0.5).gpu_watts, before)
    payload = bytearray(message(GROUPS[0], 1.0, 1))
    payload[at % len(payload)] = byte
    site.receive(bytes(payload), 0.1)
    assert len(site.read(FLEET, 0.5).gpu_watts) == len(MACHINES)


def test_a_sender_tells_names_first_then_every_ten_seconds_and_speaks_of_empty_groups() -> None:
    sender = NodePowerSender(session=5)
    epochs = {"00": 3, "ff": 4}
    told = []
    for _ in range(21):
        [found] = [decode(payload) for payload in sender.messages(Fleet(), 1.0, epochs)]
        assert [(span.group, span.epoch, span.nodes) for span in found.groups] == [("00", 3, 0), ("ff", 4, 0)]
        told.append(found.names is not None)
    assert told[0]
    assert sum(told) == 3


def test_what_a_sender_says_in_several_messages_is_what_the_site_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that is lost in between stays out, and the names of the rest travel at once."""
    monkeypatch.setattr(node_power, "NODES_PER_MESSAGE", 10)
    fleet = Fleet()
    for name in MACHINES:
        fleet.place(inventory(name, 2, 0))
    for matrix in fleet.matrices:
        matrix.gauges[:] = np.arange(len(matrix.gauges), dtype=np.float32)[:, None]
        matrix.seen[:] = 100.0
    sender, site = NodePowerSender(session=5), SitePower(MACHINES, 100.0)
    epochs = dict.fromkeys(GROUPS, 1)
    for now in (100.0, 101.0):
        payloads = sender.messages(fleet, now, epochs)
        assert len(payloads) >= 4
        assert all(site.receive(payload, now) for payload in payloads)
        told, plain = site.read(FLEET, now), FleetPowerReader(MACHINES).read(fleet, now)
        for name in set(COLUMNS) - {"wall_age"}:
            wanted = np.asarray(getattr(plain, name), np.float32)
            np.testing.assert_array_equal(np.asarray(getattr(told, name), np.float32), wanted, name)
    del epochs[GROUPS[0]]
    payloads = sender.messages(fleet, 102.0, epochs)
    assert all(decode(payload).names is not None for payload in payloads)
    assert GROUPS[0] not in {span.group for payload in payloads for span in decode(payload).groups}


@pytest.mark.parametrize("change", [{"columns": {}}, {"names": ("a", "b", "c")}])
def test_a_message_whose_parts_do_not_fit_is_refused(change: dict[str, object]) -> None:
    whole = decode(message(GROUPS[0], 1.0))
    with pytest.raises(ValueError, match=r"columns|values"):
        decode(encode(msgspec.structs.replace(whole, **change)))
