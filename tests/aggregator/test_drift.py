"""Who differs from nodes of its kind: the pure part on 500 nodes, the API, and the commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from aggregator.register.domains import DOMAIN
from aggregator.register.drift import compared, difference, drift_of
from aggregator.register.facts import facts_of
from api.drift import DriftReply, NodeGroup
from kilowatch.__main__ import main
from telemetry.devices import Gpu, Link, Port
from telemetry.wire.inventory import Inventory
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import Door, door


async def ran(client: Door, *arguments: str) -> Result:
    """Type a command; it must not hold up the loop that answers."""
    http = ("--http", f"127.0.0.1:{client.port}")
    return await asyncio.to_thread(CliRunner().invoke, main, [*arguments, *http])


REPLACE = msgspec.structs.replace
Change = Callable[[Inventory], Inventory]


def dgx(number: int, product: str = "DGXH100", links: int = 18) -> Inventory:
    """A node as all others of its kind, but for what is its own."""
    name = f"dgx-{number:03}"
    gpus = tuple(
        Gpu(
            uuid=f"GPU-{number}-{index}",
            index=index,
            name="NVIDIA H100 80GB HBM3",
            serial=f"16{number}{index}",
            pci=f"0000:{index + 16:02x}:00.0",
            vbios="96.00.61.00.01",
            part_number="692-2G520-0200-000",
            memory_bytes=85_520_809_984,
            power_limit_watts=700.0 - number % 3 * 100,
        )
        for index in range(8)
    )
    return Inventory(
        node=name, kilowatch="2026.1", driver_version="580.126.09", cuda_version="13.0", driver_state="up",
        host={"kernel": "6.8.0-51-generic", "os": "Ubuntu 24.04", "cpu": "Xeon 8480C", "cpus": "224",
              "product": product, "bios": "1.6.7", "serial": f"S{number}", "hostname": name, "machine": f"m{number}"},
        gpus=gpus,
        links=tuple(Link(gpu=gpu.uuid, number=link) for gpu in gpus for link in range(links)),
        ports=tuple(
            Port(id=f"port:{name}:{index}", adapter=f"mlx5_{index}", number=1, link_layer="InfiniBand",
                 model="MT4129 MT_0000000838", firmware="28.41.1000", guid=f"{number}:{index}")
            for index in range(8)
        ),
    )  # fmt: skip


def node(**facts: Any) -> Change:
    """A change of the node itself."""
    return lambda its: REPLACE(its, **facts)


def gpu(index: int, **facts: Any) -> Change:
    """A change of one GPU."""
    return lambda its: REPLACE(its, gpus=(*its.gpus[:index], REPLACE(its.gpus[index], **facts), *its.gpus[index + 1 :]))


def host(**facts: str) -> Change:
    """A change of the host's facts."""
    return lambda its: REPLACE(its, host={**its.host, **facts})


def port(index: int, **facts: Any) -> Change:
    """A change of one port."""
    return lambda its: REPLACE(
        its, ports=(*its.ports[:index], REPLACE(its.ports[index], **facts), *its.ports[index + 1 :])
    )


PLANTED: dict[int, tuple[Change, str, str]] = {
    3: (lambda its: REPLACE(its, driver_version="575.57.08"), "driver", "575.57.08"),
    17: (lambda its: REPLACE(its, cuda_version="12.9"), "cuda", "12.9"),
    40: (lambda its: REPLACE(its, kilowatch="2026.0"), "kilowatch", "2026.0"),
    41: (gpu(3, vbios="96.00.5F.00.03"), "gpu vbios", "7 x 96.00.61.00.01, 1 x 96.00.5F.00.03"),
    99: (gpu(7, present=False), "gpus", "7"),
    100: (gpu(0, part_number="692-2G520-0205-000"), "gpu part number", "7 x 692-2G520-0200-000, 1 x 692-2G520-0205-000"),
    161: (gpu(5, mig=True), "gpu mig", "7 x off, 1 x on"),
    222: (lambda its: REPLACE(its, links=its.links[:-1]), "nvlinks", "7 x 18, 1 x 17"),
    300: (host(kernel="6.8.0-49-generic"), "kernel", "6.8.0-49-generic"),
    301: (host(bios="1.5.2"), "bios", "1.5.2"),
    402: (port(2, firmware="28.39.1002"), "port firmware MT4129 MT_0000000838", "7 x 28.41.1000, 1 x 28.39.1002"),
    499: (lambda its: REPLACE(its, ports=its.ports[1:]), "ports", "7 x InfiniBand MT4129 MT_0000000838"),
}  # fmt: skip


def fleet(changes: dict[int, Change], nodes: int = 500) -> list[Inventory]:
    """Nodes of one kind with some changes."""
    return [changes[number](dgx(number)) if number in changes else dgx(number) for number in range(nodes)]


def one_group(inventories: list[Inventory]) -> NodeGroup:
    (found,) = drift_of(map(compared, inventories), 0).groups
    return found


def test_twelve_planted_deviations_of_500_nodes_are_found_and_no_other() -> None:
    group = one_group(fleet({number: change for number, (change, _, _) in PLANTED.items()}))
    assert group.name == "DGXH100, NVIDIA H100 80GB HBM3"
    found = {(one.node, one.fact): one.has for one in group.deviations}
    assert found == {(f"dgx-{number:03}", fact): has for number, (_, fact, has) in PLANTED.items()}
    assert {(one.nodes, one.of) for one in group.deviations} == {(499, 500)}
    assert group.mixed == []
    assert group.unknown == {}


def test_what_is_a_nodes_own_and_what_is_set_by_intention_is_never_compared() -> None:
    assert one_group(fleet({})).deviations == []


@pytest.mark.parametrize(("newer", "deviating", "mixed"), [(4, 4, 0), (5, 0, 1), (10, 0, 1), (15, 0, 1), (16, 4, 0)])
def test_a_rolling_upgrade_is_mixed_and_nobody_deviates(newer: int, deviating: int, mixed: int) -> None:
    """Of 20 nodes: the first and the last fifth are named."""
    upgraded = node(driver_version="590.10")
    group = one_group(fleet(dict.fromkeys(range(newer), upgraded), 20))
    assert (len(group.deviations), len(group.mixed)) == (deviating, mixed)
    if mixed:
        assert sum(group.mixed[0].values.values()) == 20
        assert group.mixed[0].fact == "driver"


@pytest.mark.parametrize(("nodes", "evaluated", "found"), [(4, False, 0), (5, True, 1)])
def test_few_nodes_have_no_majority_and_say_so(nodes: int, evaluated: bool, found: int) -> None:
    group = one_group(fleet({1: host(kernel="5.15")}, nodes))
    assert (group.evaluated, len(group.deviations)) == (evaluated, found)


def test_what_a_node_does_not_say_is_counted_and_no_difference() -> None:
    silent = node(host={"product": "DGXH100"}, driver_version=None)
    group = one_group(fleet({2: silent, 3: gpu(4, vbios=None)}, 20))
    assert group.deviations == []
    assert group.unknown == {"bios": 1, "cpu": 1, "cpus": 1, "driver": 1, "gpu vbios": 1, "kernel": 1, "os": 1}


def test_a_driver_that_is_gone_is_no_deviation() -> None:
    """Its rows remain: the collector keeps GPUs that it knew; one that never knew any is of another kind."""
    gone = node(gpus=(), links=(), driver_version=None, driver_state="missing")
    reply = drift_of(map(compared, fleet({2: gone}, 20)), 0)
    assert [(group.name, group.nodes, group.evaluated) for group in reply.groups] == [
        ("DGXH100", 1, False),
        ("DGXH100, NVIDIA H100 80GB HBM3", 19, True),
    ]
    assert all(not group.deviations for group in reply.groups)


def test_kinds_are_evaluated_apart() -> None:
    mixed = [*fleet({}, 10), *(dgx(number, "HGX") for number in range(100, 110))]
    older = [REPLACE(its, driver_version="575") if "HGX" in its.host["product"] else its for its in mixed]
    assert [group.deviations for group in drift_of(map(compared, older), 0).groups] == [[], []]


@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=40))
def test_whatever_the_values_are_a_deviation_has_a_majority_against_it(values: list[str | None]) -> None:
    nodes = [
        Inventory(node=f"n{number}", host={"product": "X"}, driver_version=value) for number, value in enumerate(values)
    ]
    for one in one_group(nodes).deviations:
        assert one.nodes >= max(4, 0.8 * one.of)
        assert values[int(one.node[1:])] == one.has != one.most_have
        assert values.count(one.most_have) == one.nodes


def test_two_nodes_side_by_side() -> None:
    found = difference(dgx(1), host(kernel="5.15")(REPLACE(dgx(2), cuda_version=None)))
    assert [(one.fact, one.first, one.second) for one in found.differences] == [
        ("cuda", "13.0", ""),
        ("kernel", "6.8.0-51-generic", "5.15"),
    ]
    assert set(found.same) == facts_of(dgx(1)).keys() - {"cuda", "kernel"}


async def test_the_commands_say_it_and_end_with_their_codes() -> None:
    view = FakeView()
    changes = {3: PLANTED[3][0], 6: gpu(0, vbios=None)}
    for inventory in fleet(changes, 8):
        view.fleet.place(inventory)
    async with door(view) as client:
        status, body = await client.json("/api/v1/drift")
        assert status == 200
        (group,) = msgspec.convert(body, DriftReply).groups
        assert [(one.node, one.fact) for one in group.deviations] == [("dgx-003", "driver")]
        shown = await ran(client, "drift")
        assert shown.exit_code == 1, shown.output
        assert "8 nodes, 1 differs" in shown.output
        assert "dgx-003  driver  575.57.08  580.126.09 (7 of 8)" in shown.output
        assert "not known: gpu vbios of 1 node" in shown.output
        assert json.loads((await ran(client, "drift", "--json")).output)["nodes"] == 8
        alike = await ran(client, "diff", "dgx-000", "dgx-001")
        assert (alike.exit_code, alike.output.strip()) == (0, "dgx-000 and dgx-001 are alike in 17 facts")
        other = await ran(client, "diff", "dgx-000", "dgx-003")
        assert other.exit_code == 1
        assert "driver  580.126.09  575.57.08" in other.output
        nobody = await ran(client, "diff", "dgx-000", "dgx-900")
        assert nobody.exit_code == 3
        assert "dgx-900" in nobody.output
        for name in list(view.fleet.nodes)[3:]:
            view.fleet.remove(name)
        few = await ran(client, "drift")
        assert few.exit_code == 3
        assert "3 nodes, too few to say what most have" in few.output


def tray(number: int, rack: str, cluster: str | None, clique: int = 1) -> Inventory:
    """A compute tray of an NVL72."""
    gpus = tuple(
        Gpu(uuid=f"{rack}-{number}-{gpu}", index=gpu, name="NVIDIA GB200", fabric_cluster=cluster, fabric_clique=clique)
        for gpu in range(4)
    )
    return Inventory(node=f"{rack}-{number}", cluster="c", gpus=gpus, host={"rack": rack, "product": "GB200 NVL72"})


def domains(*nodes: Inventory) -> list[tuple[str, str, str]]:
    (group,) = drift_of([compared(node) for node in nodes], 1).groups
    return [(one.node, one.has, one.most_have) for one in group.deviations if one.fact == DOMAIN]


def test_a_tray_in_another_nvlink_domain_than_its_rack_deviates() -> None:
    """Two racks, each with a cluster UUID of its own; one tray has another clique, one another cluster."""
    rack = [tray(n, "a", "uuid-a") for n in range(17)] + [tray(n, "b", "uuid-b") for n in range(16)]
    split = [tray(17, "a", "uuid-a", 2), tray(17, "b", "uuid-a")]
    silent = tray(16, "b", None)  # it does not say: unknown is no difference
    assert domains(*rack, *split, silent) == [("a-17", "uuid-a.2", "uuid-a.1"), ("b-17", "uuid-a.1", "uuid-b.1")]


def test_gpus_of_one_tray_in_two_domains_deviate_and_own_domains_do_not() -> None:
    whole = [tray(n, "a", "uuid-a") for n in range(8)]
    torn = tray(8, "a", "uuid-a")
    gpus = (*torn.gpus[:3], msgspec.structs.replace(torn.gpus[3], fabric_clique=7))
    torn = msgspec.structs.replace(torn, gpus=gpus)
    assert domains(*whole, torn) == [("a-8", "3 x uuid-a.1, 1 x uuid-a.7", "uuid-a.1")]
    assert domains(*(tray(n, "a", f"uuid-{n}") for n in range(12))) == []  # switches of their own
    assert domains(*(tray(n, "a", f"uuid-{n % 2}") for n in range(12))) == []  # a rack in two halves
    assert domains(*(tray(n, "", "uuid-a", n % 6) for n in range(12))) == []  # no rack is known
