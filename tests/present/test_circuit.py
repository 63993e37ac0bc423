"""A circuit is worded once: golden texts, and the three faces that lay them out."""

from __future__ import annotations

import html
import re
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from aggregator.web.circuit_list import circuits_body
from aggregator.web.circuit_page import circuit_body, losses_body
from api.power import CircuitPlan, CircuitReply, CircuitState, PlanResult, PowerReply
from kilowatch.text.circuits import circuit_lines as command_lines
from kilowatch.text.losses import loss_lines
from kilowatch.text.plan import plan_lines
from present.circuit.losses import passed_limit, planned_trip
from present.circuit.outlook import NextKind, next_event, next_row, outlook, trip_band
from present.circuit.rows import gentlest, page_rows, relief_command
from present.row import FactRow, Tone
from tests.present import golden
from tests.present.circuits import CIRCUITS, COOL
from tests.tui.test_lines import line_text, state
from tui.screens.circuit import circuit_lines
from tui.screens.circuits import what_if_lines
from tui.state.circuits import Now

INF, NAN = float("inf"), float("nan")


def test_every_fact_of_a_circuit_reads_as_kept() -> None:
    """Rows of its page, what happens next in a list, and the same on its page."""
    golden.check(
        "circuit",
        {
            name: golden.told([next_row(each), replace_label(outlook(each)), *page_rows(each)])
            for name, each in CIRCUITS.items()
        },
    )


def replace_label(row: FactRow) -> FactRow:
    """Return the outlook under a name of its own."""
    return FactRow("outlook", row.value, row.tone, row.since, row.until, row.note)


def seen(circuit: CircuitState) -> dict[str, str]:
    """Return the circuit's page in each face, as one line of text."""
    past = (np.empty(0), np.empty(0))
    shown = state(circuits=[circuit])
    web = circuit_body(CircuitReply(at=1, circuit=circuit), 0, "", "") + circuits_body(
        [circuit], {}, PowerReply(configured=True)
    )
    faces = {
        "terminal": [line_text(each) for each in circuit_lines(shown, circuit.id, past, Now(0.0), 400, 60, utc=True)],
        "web": [html.unescape(re.sub(r"<[^>]*>", " ", web))],
        "command": command_lines([circuit], 400),
    }
    return {face: " ".join(" ".join(lines).split()).casefold() for face, lines in faces.items()}


@pytest.mark.parametrize("name", CIRCUITS)
def test_the_three_faces_say_the_same_of_what_comes_next(name: str) -> None:
    """The words; each face writes the time that is left as its room allows."""
    circuit = CIRCUITS[name]
    for face, text in seen(circuit).items():
        assert outlook(circuit).value.casefold() in text, face
        if next_event(circuit).kind is not NextKind.TRIP:
            assert outlook(circuit).note.casefold() in text, face


@pytest.mark.parametrize("name", ["continuous limit ahead, which is the rating", "rating ahead"])
def test_no_face_calls_the_continuous_limit_80_percent(name: str) -> None:
    """It is what the circuit is configured with: here 1.0 of the rating."""
    for face, text in seen(CIRCUITS[name]).items():
        assert "80%" not in text, face


def test_the_command_cuts_no_fact() -> None:
    """At its own width, each on a line of its own where two have no room."""
    lines = [line for circuit in CIRCUITS.values() for line in command_lines([circuit])]
    assert not [line for line in lines if line.endswith(("…", ";"))]


PLANNED = CircuitPlan(
    id="office",
    watts=2900.0,
    amps={"L1": 24.2},
    rated_amps=20.0,
    continuous_amps=16.0,
    load_ratio=1.21,
    trip_seconds={"earliest": None, "nominal": None, "latest": None},
    trip_known=False,
    committed_watts=2900.0,
    alerts=[],
)
"""A circuit above its breaker's rating, whose trip band nobody knows."""


def asked(circuit: CircuitPlan) -> dict[str, str]:
    """Return the answer to a what-if in each face."""
    plan = PlanResult(circuits=[circuit], panels=[], nodes=[], budgets=[], notices=[])
    return {
        "plan": "\n".join(plan_lines(plan)),
        "losses": "\n".join(loss_lines(["UPS-A"], plan)),
        "web": losses_body("UPS-A", plan, []),
        "terminal": "\n".join(line_text(each) for each in what_if_lines("UPS-A", plan, state())),
    }


def test_an_unknown_trip_band_is_not_called_safe() -> None:
    """Nobody knows when it trips, so that no face may say that it does not."""
    for face, text in asked(PLANNED).items():
        assert "when it trips is not known" in text, face
        assert "no trip" not in text, face
        assert "does not trip" not in text, face
    for face, text in asked(replace(PLANNED, trip_known=True)).items():
        assert "does not trip at this load" in text, face
    for face, text in asked(replace(PLANNED, trip_known=True, unknown=["rig1"])).items():
        assert "does not trip" not in text, face


@pytest.mark.parametrize(
    ("more", "passed", "trip", "whole"),
    [
        ({}, "above its breaker of 20 A", "when it trips is not known", ""),
        ({"amps": {"L1": 18.0}, "trip_known": True}, "above its continuous limit of 16 A", "does not trip at this load", ""),
        ({"amps": {"L1": 8.0}, "trip_known": True}, "", "does not trip at this load", ""),
        ({"trip_seconds": {"earliest": 22.0, "latest": 75.0}}, "above its breaker of 20 A", "may trip in 22 s", "may trip in 22 s .. 75 s (estimate)"),
        ({"trip_seconds": {"earliest": 22.0, "latest": None}}, "above its breaker of 20 A", "may trip in 22 s", "may trip in 22 s .. never (estimate)"),
    ],
)  # fmt: skip
def test_a_planned_circuit_names_the_limit_that_it_passes_and_its_trip(
    more: dict[str, Any], passed: str, trip: str, whole: str
) -> None:
    circuit = replace(PLANNED, **more)
    assert passed_limit(circuit) == passed
    assert (planned_trip(circuit).text, planned_trip(circuit).note) == (trip, whole)


def test_a_countdown_runs_and_says_now_at_its_end() -> None:
    trips = CIRCUITS["may trip"]
    assert next_row(trips, elapsed=4.0).text == "may trip in 7 s"
    assert next_row(trips, elapsed=99.0).text == "may trip now"
    assert next_row(trips, Tone.CRIT).tone is Tone.CRIT
    assert outlook(trips, elapsed=4.0).note.startswith("typically 36 s, at the latest 3 min 16 s")


@pytest.mark.parametrize(
    ("trips", "text"),
    [
        ((NAN, NAN, NAN), "not known, as its load is not"),
        ((INF, INF, INF), "it does not trip at this load"),
        ((0.0, INF, INF), "at any moment, perhaps never"),
        ((0.0, 9.0, 30.0), "at any moment, typically after 9 s, within 30 s"),
        ((9.0, INF, INF), "after 9 s at the earliest, more likely never"),
        ((9.0, 30.0, INF), "after 9 s at the earliest, typically after 30 s, perhaps never"),
        ((9.0, 30.0, 75.0), "between 9 s and 75 s, typically after 30 s"),
    ],
)
def test_an_alert_says_when_a_breaker_trips(trips: tuple[float, float, float], text: str) -> None:
    """A band, and that it is an estimate where it is one."""
    estimate = "" if trips[0] != trips[0] or trips[0] == INF else "; an estimate; a breaker may trip earlier or later"
    assert trip_band(*trips) == text + estimate


def test_relief_has_a_command_only_if_it_can_be_run() -> None:
    bare = "limit the clocks (nvidia-smi -lgc) until each GPU draws 200 W"
    assert gentlest("cap each GPU at 400 W; or run 3 of the 4 GPUs here (a note)") == "cap each GPU at 400 W"
    assert gentlest(COOL.facts["remedy"]) == COOL.facts["remedy"]
    assert relief_command(COOL.facts["remedy"]) == "nvidia-smi -pl 540"
    assert relief_command(bare) == "", "a command without its argument"
    assert relief_command(f"{bare} or cap each (nvidia-smi -pl 200)") == "nvidia-smi -pl 200"
