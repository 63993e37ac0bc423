"""The fault-pair matrix: what becomes of a page while another page goes on.

Every rule that pages, beside every rule that pages, at three places and after three treatments of the
first page. The table below declares the outcome of each cell; all that it does not name is a page of
its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest

from tests.alerts.fault_pairs import RULES, Cell, Outcome, Play, Treated, Where, cells, firing, is_of_node

# -- The table -------------------------------------------------------------------------------------

NOT_APPLICABLE: dict[str, Callable[[Cell], bool]] = {
    "the same alert goes on": (
        lambda cell: firing(cell.first, Where.SAME).key == firing(cell.second, cell.where, 1).key
    ),
    "a fault of a whole node has no other GPU: it is the cell of the same GPU": (
        lambda cell: cell.where is Where.OTHER and is_of_node(RULES[cell.second])
    ),
}
"""Reasons for cells that can't be, in the order in which they are found."""

INHIBITED: dict[tuple[Where, ...], dict[str, str]] = {
    (Where.SAME,): {
        "circuit_continuous_hours": "circuit_continuous",
        "circuit_overload": "circuit_continuous circuit_forecast_rated",
        "circuit_thermal_warm": "circuit_continuous circuit_overload circuit_forecast_rated",
        "circuit_thermal_hot": "circuit_thermal_warm circuit_continuous circuit_overload circuit_forecast_rated",
        "circuit_trip_suspected": "circuit_continuous circuit_overload circuit_thermal_warm "
        "circuit_thermal_hot circuit_forecast_rated circuit_feed_lost circuit_meter_blind nodes_silent "
        "busy_node_silent",
        "nodes_silent": "busy_node_silent",
        "circuit_failover_rated": "circuit_failover",
        "ups_battery_ends": "ups_on_battery ups_battery_low",
        "budget_power_full": "budget_power_near",
        "gpu_lost": "gpu_hung recovery_action recovery_p2p gpu_fault nvswitch_links nvlink_down nvlink_errors "
        "nvlink_fatal fabric driver_fault",
        "gpu_hung": "driver_hung",
        "recovery_p2p": "nvlink_down",
        "gsp_dead": "gpu_hung driver_hung recovery_action gpu_fault driver_fault",
        "fabric": "fabric_never",
        "gpu_fault": "recovery_action",
        "ecc_dbe": "recovery_action ecc_uncorrected",
        "ecc_uncontained": "recovery_action ecc_dbe ecc_uncorrected",
        "ecc_repeat": "ecc_dbe ecc_uncorrected",
        "remap_failure": "recovery_action ecc_dbe ecc_uncorrected",
        "sram_threshold": "ecc_dbe ecc_uncorrected",
        "ras_uncorrected": "ecc_uncorrected",
        "thermal_margin": "thermal_hw",
        "thermal_limit": "thermal_hw",
        "nvlink_errors": "recovery_action recovery_p2p nvlink_down",
        "nvlink_fatal": "recovery_action recovery_p2p nvlink_down nvlink_errors",
    },
    (Where.SAME, Where.OTHER): {
        "nvswitch_fault": "nvswitch_links nvlink_down nvlink_errors nvlink_fatal fabric fabric_setup",
        "nvswitch_links": "nvlink_down",
    },
}
"""First and second fault whose cause the first one is, whatever a person did with its page; the rule
of the first says why. The same GPU, circuit, UPS or budget; of a switch all GPUs that it joins."""

UPDATE = {"nvlink_down", "nvlink_errors"}
"""Rules about links: another link of the same GPU is named in an update of the page."""

BY_SILENCE = "the silence of the first page covers its rule on its node"


def declared(cell: Cell) -> tuple[Outcome, str]:
    """Return the outcome of a cell by the table, and the reason where it is no page."""
    for reason, applies in NOT_APPLICABLE.items():
        if applies(cell):
            return Outcome.NOT_APPLICABLE, reason
    for places, causes in INHIBITED.items():
        if cell.where in places and cell.second in causes.get(cell.first, "").split():
            return Outcome.INHIBITED, why(cell.first, cell.second)
    if cell.first == cell.second and cell.where is not Where.ELSEWHERE:
        on_node = firing(cell.first, Where.SAME).node
        if cell.treated is Treated.SILENCED and on_node:
            return Outcome.SILENCED, BY_SILENCE
        if cell.where is Where.SAME and cell.second in UPDATE:
            return Outcome.UPDATE, "another link of a GPU that the page has named"
    return Outcome.PAGE, ""


def why(first: str, second: str) -> str:
    """Return why a rule inhibits another, as it says itself."""
    return next(one.why for one in RULES[first].inhibits if one.rule == second)


@cache
def table() -> dict[Cell, tuple[Outcome, str]]:
    """Return every cell with its outcome; made by the first test that asks, not by every process that collects."""
    return {cell: declared(cell) for cell in cells()}


def special() -> list[Cell]:
    """Return the cells that are neither a page of their own nor impossible."""
    usual = {Outcome.PAGE, Outcome.NOT_APPLICABLE}
    return [cell for cell, (outcome, _) in table().items() if outcome not in usual]


# -- Every cell ------------------------------------------------------------------------------------


def differences(some: list[Cell]) -> list[str]:
    """Play cells; return those that do not do what the table says."""
    found = []
    for cell in some:
        outcome = Play(cell).outcome()
        if outcome is not table()[cell][0]:
            found.append(f"{cell}: {outcome or 'nothing'}, not {table()[cell][0]}")
    return found


@pytest.mark.systems
@pytest.mark.parametrize("first", RULES)
def test_every_cell_is_what_the_table_says(first: str) -> None:
    """Nothing is announced as resolved meanwhile: `Play.outcome` refuses that."""
    mine = [cell for cell in table() if cell.first == first]
    assert len(mine) == len(RULES) * 9
    assert not differences([one for one in mine if table()[one][0] is not Outcome.NOT_APPLICABLE])


def test_the_cells_that_are_no_page_of_their_own_are_what_the_table_says() -> None:
    assert not differences(special())


def test_the_second_fault_of_a_handful_pages_at_every_place() -> None:
    """The pairs that were seen to ring nobody, among others; the whole matrix takes a minute."""
    some = {"gpu_fault", "gsp_dead", "gpu_lost", "ecc_dbe", "nodes_silent", "circuit_overload"}
    mine = [one for one in table() if {one.first, one.second} <= some]
    assert not differences([one for one in mine if table()[one][0] is Outcome.PAGE])


def test_what_is_inhibited_silenced_or_not_applicable_is_bounded_and_has_a_reason() -> None:
    counted = Counter(outcome for outcome, _ in table().values())
    assert all(reason for outcome, reason in table().values() if outcome is not Outcome.PAGE)
    assert len(table()) == len(RULES) ** 2 * 9
    assert counted[Outcome.PAGE] > 0.99 * (len(table()) - counted[Outcome.NOT_APPLICABLE])
    assert counted[Outcome.INHIBITED] < 0.01 * len(table())
    assert counted[Outcome.SILENCED] <= len(RULES)
    assert counted[Outcome.UPDATE] == len(UPDATE) * 2
    reasons = Counter(reason for outcome, reason in table().values() if outcome is Outcome.NOT_APPLICABLE)
    of_node = sum(is_of_node(rule) for rule in RULES.values())
    same, node = reasons.values()
    assert (set(reasons), node) == (set(NOT_APPLICABLE), (len(RULES) * of_node - of_node) * 3)
    assert same == 3 * (len(RULES) - len(UPDATE) + of_node)


def test_the_table_names_each_inhibition_of_a_page_in_the_rules() -> None:
    """A pair that is added to the rules is added here too, or the matrix is not what it says."""
    in_rules = {(first, one.rule) for first, rule in RULES.items() for one in rule.inhibits if one.rule in RULES}
    in_table = {
        (first, second)
        for causes in INHIBITED.values()
        for first, seconds in causes.items()
        for second in seconds.split()
    }
    assert in_rules == in_table


def test_no_cause_on_one_gpu_reaches_a_page_of_another() -> None:
    """Node-wide causes apart, which concern all GPUs of a node; their pages have no GPU."""
    across = {
        (cell.first, cell.second)
        for cell, (outcome, _) in table().items()
        if outcome is Outcome.INHIBITED and cell.where is not Where.SAME
    }
    assert across
    assert all(firing(first, Where.SAME).gpu is None for first, _ in across)
    assert all(cell.where is not Where.ELSEWHERE for cell in special())


@pytest.mark.parametrize("treated", Treated)
def test_when_a_cause_ends_what_it_inhibited_rings_and_nothing_that_fires_is_resolved(treated: Treated) -> None:
    for cell in special():
        if cell.treated is treated:
            rings, resolved = Play(cell).after_the_first_ends()
            assert rings is (table()[cell][0] is Outcome.INHIBITED), cell
            assert not resolved, cell
