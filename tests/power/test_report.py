"""What a cluster is and takes: energy by counters and trapezoids, prices by the hour, the verdict."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.report import Report
from power.report.cluster_parts import memory_gb, parts_of, pools_of, running_part
from power.report.energy import between, carbon_kg, cost, counted
from power.report.energy_ledger import Day, EnergyLedger, EnergySample, total
from power.report.measured import idle, measured, utilisation
from power.report.report import describe, times_cheaper
from power.site.config import NodeConfig, PowerConfig, SiteConfig
from power.site.decode import decode
from power.site.tariff import TariffRate, mean_price, price_at
from telemetry.devices import Gpu, Link, MemoryPool
from telemetry.errors import ConfigError
from telemetry.wire.inventory import Inventory
from tests.power.stage import Stage, meter

NAN = math.nan
NIGHT = TariffRate(start="22:00", end="06:00", price=0.10)
WORK = TariffRate(start="08:00", end="18:00", price=0.40, days=("mon", "tue", "wed", "thu", "fri"))


def site(text: str) -> PowerConfig:
    """Decode a configuration."""
    return decode("site.toml", tomllib.loads(text))


def report_of(text: str) -> Report:
    """Describe a configuration."""
    found = site(text)
    return describe(parts_of("site.toml", found), found.site)


DGX = '[nodes.a]\nprofile = "dgx-h100"\n[nodes.b]\nprofile = "dgx-h100"\n'
RIG = '[nodes.rig]\ngpus = "4x RTX 5090"\nhost_price_usd = 4000\n'


def test_the_two_published_clusters_come_out_as_published() -> None:
    """Acceptance 3 of the issue, figure by figure."""
    one, other = report_of(DGX), report_of(RIG)
    assert (one.memory_gb, one.price_usd, one.sustained_watts) == (1280, 700_000, 17_000)
    assert (f"{one.homes:.2f}", f"{one.ev_hours:.2f}") == ("14.17", "5.29")
    assert (one.pools, one.verdict, one.mixed) == (((8, 640), (8, 640)), "cluster", False)
    assert (other.memory_gb, other.sustained_watts) == (128, 2550)
    assert other.pools == ((1, 32),) * 4
    assert (other.prices.gpus, other.prices.hosts, other.prices.total) == (7996, 4000, 11_996)
    assert (f"{other.homes:.2f}", f"{other.ev_hours:.2f}") == ("2.12", "35.29")
    assert other.verdict == "pile"
    assert round(times_cheaper(one, other) or 0) == 58


def test_the_verdict_is_of_the_links_and_not_of_the_name() -> None:
    """A DGX whose links are down is a pile; bridged cards of a desktop are a cluster."""
    assert report_of(DGX.replace('h100"\n', 'h100"\nlinked_gpus = 1\n')).verdict == "pile"
    bridged = report_of('[nodes.rig]\ngpus = "2x RTX 3090"\nlinked_gpus = 2\n')
    assert (bridged.verdict, bridged.pools) == ("cluster", ((2, 48),))
    for board, number, gb in (("MI300X", 8, 1536), ("H200 SXM", 8, 1128)):
        whole = report_of(f'[nodes.rig]\ngpus = "{number}x {board}"\n')
        assert (whole.verdict, whole.pools) == ("cluster", ((number, gb),)), "of a chassis, all"
        part = report_of(f'[nodes.rig]\ngpus = "{number - 1}x {board}"\n')
        assert (part.verdict, len(part.pools)) == ("pile", number - 1)
    with pytest.raises(ConfigError, match="4 GPUs do not fall into pools of 3"):
        report_of(RIG + "linked_gpus = 3\n")


def test_mixed_models_and_roles_are_counted_and_a_missing_price_is_no_sum() -> None:
    """A cluster whose one node has no price has none."""
    mixed = report_of(RIG + '[nodes.old]\ngpus = "2x RTX 3090"\nrole = "tests"\n[nodes.nas]\nwatts = 90\n')
    assert mixed.mixed
    assert mixed.gpus == {"GeForce RTX 5090": 4, "GeForce RTX 3090": 2}
    assert mixed.roles == {"gpu": 1, "support": 1, "tests": 1}
    assert mixed.price_usd is None
    assert mixed.sustained_watts == 2550 + 950 + 90
    with pytest.raises(ConfigError, match="no node has GPUs"):
        report_of("[nodes.nas]\nwatts = 90\n")


def test_a_node_without_gpus_counts_with_its_hosts_watts() -> None:
    """A storage server of 400 W inside draws 444 W; one of which nothing is said is not known."""
    store = "[nodes.store]\nhost_watts = 400\n[nodes.store.supply]\npoints = [[0.2, 0.9], [1.0, 0.9]]\n"
    alone = report_of(RIG)
    with_store = report_of(RIG + store + "[nodes.plain]\n")
    assert with_store.sustained_watts == (alone.sustained_watts or 0) + 400
    assert with_store.wall_watts == pytest.approx((alone.wall_watts or 0) + 400 / 0.9, abs=0.1)
    assert report_of(DGX).wall_watts == report_of(DGX).sustained_watts  # published at the wall


def test_a_month_costs_what_its_hours_cost() -> None:
    """730 h at 2,550 W inside, 2,833 W at the wall; PUE is paid; a tariff by the hour is weighted."""
    supply = "[nodes.rig.supply]\npoints = [[0.2, 0.9], [0.5, 0.9], [1.0, 0.9]]\n"
    report = report_of("[site]\ntariff = 0.2\npue = 1.5\ng_per_kwh = 400\n" + RIG + supply)
    assert (report.sustained_watts, report.wall_watts) == (2550, 2833.3)
    month = report.month
    assert month is not None
    assert month.kwh == pytest.approx(730 * 2.55 / 0.9, abs=0.1)
    assert month.cost == pytest.approx(730 * 2.55 / 0.9 * 1.5 * 0.2, abs=0.01)
    assert month.co2_kg == pytest.approx(730 * 2.55 / 0.9 * 1.5 * 0.4, abs=0.1)
    assert mean_price(0.25, (NIGHT,)) == pytest.approx((8 * 0.10 + 16 * 0.25) / 24)
    assert mean_price(None, (NIGHT,)) is None
    with pytest.raises(ConfigError, match="some hours of the week have no price"):
        site('[site]\ntariffs = [{ from = "22:00", to = "06:00", price = 0.1 }]\n')


@pytest.mark.parametrize(
    ("minute", "price"),
    [
        (0, 0.10),  # Monday, midnight
        (5 * 60 + 59, 0.10),
        (6 * 60, 0.25),
        (8 * 60, 0.40),
        (18 * 60, 0.25),
        (22 * 60, 0.10),
        (5 * 1440 + 9 * 60, 0.25),  # Saturday: no working hours
        (6 * 1440 + 23 * 60, 0.10),  # Sunday night, into the new week
    ],
)
def test_a_price_holds_for_its_hours_and_days(minute: int, price: float) -> None:
    """The night of Sunday reaches into Monday."""
    assert price_at(0.25, (NIGHT, WORK), minute) == price


def test_counters_survive_resets_and_gaps() -> None:
    """A decrease is a reset, counted from 0 on; what a counter counted in a gap is known."""
    stage = Stage("[circuits.a]\nbreaker = 20\nvolts = 240\nnodes = ['n']")
    stage.play(1, meters=[meter("a", watts=0.0, energy_joules=100.0)])
    begin = stage.value("circuit_energy_joules", "a")
    for count, grown in ((200, 100), (50, 150), (80, 180)):
        stage.play(1, meters=[meter("a", watts=0.0, energy_joules=float(count))])
        assert stage.value("circuit_energy_joules", "a") == pytest.approx(begin + grown)
    stage.now += 5000
    stage.play(1, meters=[meter("a", watts=0.0, energy_joules=5000.0)])
    assert stage.value("circuit_energy_joules", "a") == pytest.approx(begin + 180 + 4920)
    before, after = np.array([1.0, NAN, 10.0]), np.array([3.0, 5.0, 4.0])
    assert counted(before, after) == 2 + 4


def energy_of(watts: Sequence[float], seconds: Sequence[float]) -> Day:
    """Return the day of a ledger with these samples, one a second when nothing is missed."""
    ledger = EnergyLedger()
    for draw, at in zip(watts, seconds, strict=True):
        ledger.add(EnergySample(watts=draw), 1000 + at, "2026-11-21", 1.0, None)
    return ledger.days["2026-11-21"]


def test_power_is_summed_by_trapezoids_and_a_gap_is_an_estimate() -> None:
    """Three periods are bridged silently, more is estimated, above an hour it is not known."""
    steady = energy_of([100, 200, 100], [0, 1, 2])
    assert (steady.joules, steady.seconds, steady.estimated_seconds) == (300, 2, 0)
    assert energy_of([100, NAN, NAN, 100], [0, 1, 2, 3]).estimated_seconds == 0
    gap = energy_of([100, 100], [0, 10])
    assert (gap.joules, gap.estimated_seconds) == (1000, 10)
    lost = energy_of([100, 100], [0, 4000])
    assert (lost.joules, lost.seconds, lost.unknown_seconds) == (0, 0, 4000)
    assert between(NAN, 5, 3, 1).unknown_seconds == 3


@given(st.lists(st.floats(0, 20_000), min_size=2, max_size=30), st.lists(st.floats(0.1, 20), min_size=29, max_size=29))
def test_energy_is_never_more_than_the_highest_draw_over_the_time(watts: list[float], steps: list[float]) -> None:
    """Whatever the sampling."""
    seconds = [0.0]
    for step in steps[: len(watts) - 1]:
        seconds.append(seconds[-1] + step)
    found = energy_of(watts, seconds)
    assert found.joules <= max(watts) * seconds[-1] * (1 + 1e-9)
    assert found.joules >= min(watts) * seconds[-1] * (1 - 1e-9)


def test_an_account_counts_energy_money_and_idle_gpus() -> None:
    """An hour at 2 kW, half of it with one of four GPUs idle."""
    account = EnergyLedger()
    for second in range(3601):
        idle_now = 1 if second <= 1800 else 0
        sample = EnergySample(
            watts=2000, gpu_joules=1500, gpus=4, busy_gpus=3.0, idle_gpus=idle_now, idle_watts=60.0 * idle_now
        )
        account.add(sample, 1_790_000_000 + second, "2026-11-21", 1.0, 0.30)
    day = account.days["2026-11-21"]
    place = SiteConfig(tariff=0.30, pue=1.2, g_per_kwh=100)
    kept = measured(day, place)
    assert kept is not None
    assert (kept.hours, kept.kwh, kept.estimated_ratio) == (1, 2, 0)
    assert kept.gpu_kwh == pytest.approx(1.5)
    assert kept.cost == pytest.approx(cost(2, 0.30, 1.2))
    assert kept.co2_kg == pytest.approx(carbon_kg(2, 100, 1.2))
    assert utilisation(day) == 0.75
    report = report_of("[site]\nlife_years = 4\n" + RIG)
    found = idle(day, report, place)
    assert found is not None
    assert found.gpu_hours == pytest.approx(0.5)
    assert found.ratio == pytest.approx(0.125)
    hardware = 0.5 * 11_996 / 4 / (4 * 8766)
    assert found.cost == pytest.approx(hardware + 0.03 * 0.30 * 1.2, abs=1e-4)
    assert found.cost_basis == "price over life"


def test_an_account_says_what_it_bridged_and_what_it_does_not_know() -> None:
    """A restart of a minute is an estimate; a night off is not known; a clock set back is nothing."""
    account = EnergyLedger()
    account.add(EnergySample(watts=1000), 1000.0, "d", 1.0, None)
    account.add(EnergySample(watts=1000), 1060.0, "d", 1.0, None)
    account.add(EnergySample(watts=1000), 21_060.0, "d", 1.0, None)
    account.add(EnergySample(watts=1000), 500.0, "d", 1.0, None)
    account.add(EnergySample(watts=NAN), 501.0, "d", 1.0, None)
    day = account.days["d"]
    assert (day.joules, day.seconds, day.estimated_seconds) == (60_000, 60, 60)
    assert day.unknown_seconds == 20_001
    kept = measured(day, SiteConfig())
    assert kept is not None
    assert (kept.cost, kept.estimated_ratio) == (None, 1.0)
    assert total([day, day]).joules == 120_000
    assert measured(total([]), SiteConfig()) is None


def inventory(model: str, count: int, mib: int, **more: object) -> Inventory:
    """A node with GPUs of one model."""
    gpus = tuple(Gpu(uuid=f"G{n}", index=n, name=model, memory_bytes=mib * 2**20) for n in range(count))
    return Inventory(node="n", gpus=gpus, **more)  # type: ignore[arg-type]  # a short form for tests


def test_a_running_node_is_judged_by_its_links() -> None:
    """Pools as the node says; else as its links show; else each GPU alone."""
    h100 = "NVIDIA H100 80GB HBM3"
    pooled = inventory(h100, 8, 81_559, pools=(MemoryPool(gpus=tuple(f"G{n}" for n in range(8))),))
    assert pools_of(pooled) == ((8, 640),)
    assert describe([running_part(pooled, None)]).verdict == "cluster"
    alone = inventory("NVIDIA GeForce RTX 5090", 4, 32_607)
    assert pools_of(alone) == ((1, 32),) * 4
    wires = (Link(gpu="G0", number=0, peer_kind="gpu", peer="G1"),)
    assert pools_of(inventory("NVIDIA GeForce RTX 3090", 2, 24_576, links=wires)) == ((2, 48),)
    switched = tuple(Link(gpu=f"G{n}", number=0, peer_kind="switch", peer_pci="0000:07:00.0") for n in range(4))
    assert pools_of(inventory(h100, 4, 81_559, links=switched)) == ((4, 320),)


def test_memory_is_what_the_box_says() -> None:
    """GiB rounded up; where ECC takes its part, the catalogue's figure."""
    for model, mib, gb in (
        ("NVIDIA H100 80GB HBM3", 81_559, 80),
        ("NVIDIA L40S", 46_068, 48),
        ("NVIDIA H200", 143_771, 141),
        ("Some new card", 49_140, 48),
    ):
        assert memory_gb(inventory(model, 1, mib).gpus[0]) == gb
    assert memory_gb(Gpu(uuid="x", index=0, name="Some new card")) == 0


def test_a_running_node_takes_its_prices_from_the_configuration() -> None:
    """By its profile, its own price, or its cards and the host's price."""
    cards = inventory("NVIDIA GeForce RTX 5090", 4, 32_607)
    assert running_part(cards, NodeConfig(host_price_usd=4000)).price == 11_996
    assert running_part(cards, None).price is None
    assert running_part(cards, NodeConfig(profile="dgx-h100")).price == 350_000
    assert running_part(cards, NodeConfig(price_usd=9000, role="inference")).role == "inference"
