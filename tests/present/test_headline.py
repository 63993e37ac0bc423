"""The headline says the worst true thing, and never that all is well where a limit is passed or something is unknown."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from api.alerts import IncidentNote, Severity, Subject
from api.power import LoadState, TripSeconds
from present.fleet.headline import IN_THE_KNOWN, WELL, Heard, Urgency, circuit_headline, headline, incident_headline
from present.row import Tone
from tests.alerts.notices import NOON, alert, incident
from tests.present.circuits import ASSUMED, CIRCUITS, COOL

ALL = Heard(nodes=2, silent=0, gpus=16, unread=0)
PAGE = incident(alerts=[replace(alert(), summary="dgx-01 GPU 3 is lost", description="Reboot it.")])
TICKET = incident("i-2", severity=Severity.TICKET)
TRIPS = replace(COOL, trip_seconds=TripSeconds(61.0, 200.0, None), facts={"remedy": "cap each GPU at 400 W"})


def test_all_is_well_only_where_all_is_known() -> None:
    calm = headline([], [COOL], ALL)
    assert (calm.urgency, calm.text) == (Urgency.WELL, WELL)
    assert calm.why.startswith(f"Nearest limit: {COOL.id} at ")
    partly = headline([], [COOL], Heard(nodes=2, silent=1, gpus=16, unread=8))
    assert (partly.urgency, partly.text) == (Urgency.UNKNOWN, IN_THE_KNOWN)
    assert "1 of 2 nodes is not heard; the power of 8 of 16 GPUs is not known" in partly.why
    empty = headline([], [], Heard(nodes=0, silent=0, gpus=0, unread=0))
    assert (empty.urgency, empty.why) == (Urgency.UNKNOWN, "no node has reported")
    unread = headline([], [COOL, CIRCUITS["never reported"], ASSUMED], ALL)
    assert (unread.urgency, unread.text) == (Urgency.UNKNOWN, IN_THE_KNOWN)
    assert "the load of 2 of 3 circuits is not measured" in unread.why


def test_a_passed_limit_is_never_called_well() -> None:
    """Before its alert fires, too: the sentence that nothing is wrong once stood above such a circuit."""
    over = replace(COOL, load_ratio=0.95, sustained_ratio=0.95, continuous_amps=16.0, rated_amps=20.0)
    for circuit in (TRIPS, over, replace(COOL, forecast_rated_seconds=300.0)):
        found = headline([], [circuit], ALL)
        assert found.urgency is Urgency.TICKET
        assert found.text.startswith(f"{circuit.id} ")
        assert WELL not in found.text


def test_incidents_are_counted_and_the_worst_is_named() -> None:
    found = headline([PAGE, PAGE, TICKET], [COOL], ALL)
    assert found.urgency is Urgency.PAGE
    assert found.text == "2 pages, 1 ticket: dgx-01 GPU 3 is lost"
    assert found.why == PAGE.alerts[0].description
    assert found.incident == PAGE.key


def test_a_page_that_somebody_works_at_comes_after_one_that_nobody_does() -> None:
    """Of the same severity alone: a ticket that nobody works at is no more urgent than a page."""
    taken = replace(PAGE, key="i-3", acknowledged=IncidentNote(who="ada", why="", at=NOON))
    found = headline([taken, PAGE, TICKET], [COOL], ALL)
    assert (found.text, found.incident) == ("2 pages (1 acknowledged), 1 ticket: dgx-01 GPU 3 is lost", PAGE.key)
    alone = headline([taken, TICKET], [COOL], ALL)
    assert (alone.urgency, alone.incident) == (Urgency.PAGE, "i-3")
    assert alone.text.startswith("1 page (acknowledged), 1 ticket: ")
    assert headline([TICKET], [COOL], ALL).urgency is Urgency.TICKET


def test_an_incident_of_a_circuit_says_what_helps_by_the_model() -> None:
    about = alert(node="")
    about = replace(about, subject=Subject.CIRCUIT, name=TRIPS.id)
    found = headline([incident(alerts=[about])], [TRIPS], ALL)
    assert found.why.startswith("may trip in 61 s; ")
    assert found.act == "cap each GPU at 400 W"
    assert found.trips is TRIPS
    alone = incident_headline(incident(alerts=[about]), TRIPS)
    assert (alone.act, alone.trips) == (found.act, TRIPS)
    over = incident_headline(incident(alerts=[about], ended=NOON + 1))
    assert (over.urgency, over.trips) == (Urgency.WELL, None)


@pytest.mark.parametrize(
    ("circuit", "alerted", "urgency"),
    [
        (COOL, Tone.PLAIN, Urgency.WELL),
        (COOL, Tone.WARN, Urgency.TICKET),
        (COOL, Tone.CRIT, Urgency.PAGE),
        (TRIPS, Tone.PLAIN, Urgency.PAGE),
        (replace(COOL, trip_known=False), Tone.PLAIN, Urgency.UNKNOWN),
        (replace(COOL, load_state=LoadState.UNKNOWN, watts=None, load_ratio=None, sustained_ratio=None), Tone.PLAIN, Urgency.UNKNOWN),
    ],
)  # fmt: skip
def test_a_circuit_is_as_urgent_as_its_alert_or_its_trip(circuit: object, alerted: Tone, urgency: Urgency) -> None:
    assert circuit_headline(circuit, alerted).urgency is urgency  # type: ignore[arg-type]
