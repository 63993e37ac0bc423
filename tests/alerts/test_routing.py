"""Routes: which channels are notified, and when."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.config import AlertsConfig, RouteConfig
from alerts.delivery.routing import Router
from alerts.incidents.matchers import parse, parse_all
from alerts.times import parse_hours
from api.alerts import Action, Matcher, Severity, matches_all
from telemetry.errors import ConfigError
from tests.alerts.notices import alert, incident, notice

HOUR = 3_600_000_000_000
CHANNELS = {
    "oncall": {"type": "pagerduty", "key_env": "K"},
    "night": {"type": "pagerduty", "key_env": "N"},
    "chat": {"type": "slack", "url_env": "U"},
    "am": {"type": "alertmanager", "urls": ["http://h:9093"]},
}


def at(text: str, zone: str = "UTC") -> int:
    """A wall time, ns since 1970; 2026-08-01 is a Saturday."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 10**9


MONDAY = at("2026-08-03T12:00")
SATURDAY = at("2026-08-01T12:00")


def router(*routes: RouteConfig, **more: str) -> Router:
    """One with these routes."""
    config = AlertsConfig(channels=CHANNELS, routes=routes, **more)  # type: ignore[arg-type]
    config.check()
    return Router(config)


def test_without_routes_pages_go_everywhere_at_once_and_tickets_wait_for_monday() -> None:
    found = router()
    page = notice(at=SATURDAY)
    assert found.route(page, SATURDAY) == dict.fromkeys(("oncall", "night", "chat"), SATURDAY)
    ticket = notice(at=SATURDAY, severity=Severity.TICKET)
    assert set(found.route(ticket, SATURDAY).values()) == {at("2026-08-03T08:00")}
    assert set(found.route(ticket, MONDAY).values()) == {MONDAY}
    assert found.route(notice(severity=Severity.INFO), MONDAY) == {}


def test_an_alertmanager_is_told_of_alerts_not_of_notices() -> None:
    found = router()
    assert "am" not in found.route(notice(), MONDAY)
    assert found.managers_of(alert()) == ["am"]
    assert found.managers_of(alert(severity=Severity.INFO)) == []
    picky = router(RouteConfig(channels=("am",), match=("rule=gpu_lost",)), RouteConfig(channels=("chat",)))
    assert picky.managers_of(alert()) == ["am"]
    assert picky.managers_of(alert(rule="thermal_hw")) == []


def test_the_first_route_that_fits_decides_unless_it_goes_on() -> None:
    found = router(
        RouteConfig(channels=("chat",), severity=(Severity.PAGE,), goes_on=True),
        RouteConfig(channels=("night",), match=("node=~dgx-.*",)),
        RouteConfig(channels=("oncall",)),
    )
    assert list(found.route(notice(), MONDAY)) == ["chat", "night"]
    other = notice(about=incident(alerts=[alert(node="pc-1")]))
    assert list(found.route(other, MONDAY)) == ["chat", "oncall"]


def test_a_route_for_nobody_keeps_silent() -> None:
    found = router(RouteConfig(channels=(), match=("rule=gpu_lost",)), RouteConfig(channels=("oncall",)))
    assert found.route(notice(), MONDAY) == {}


def test_one_alert_must_fulfil_all_conditions_of_a_route() -> None:
    found = router(RouteConfig(channels=("oncall",), match=("node=a", "rule=x")))
    apart = incident(alerts=[alert(node="a"), alert("x", node="b")])
    together = incident(alerts=[alert(node="b"), alert("x", node="a")])
    assert found.route(notice(about=apart), MONDAY) == {}
    assert list(found.route(notice(about=together), MONDAY)) == ["oncall"]


def test_an_incident_that_lists_no_alerts_is_routed_by_what_they_have_in_common() -> None:
    found = router(RouteConfig(channels=("oncall",), match=("rack=r12", "severity=page")))
    storm = msgspec.structs.replace(incident(alerts=[]), group={"rack": "r12"})
    assert list(found.route(notice(about=storm), MONDAY)) == ["oncall"]


def test_a_page_out_of_a_routes_hours_goes_to_the_next() -> None:
    found = router(
        RouteConfig(channels=("oncall",), times=("mon-fri 08:00-18:00",), timezone="Europe/Berlin"),
        RouteConfig(channels=("night",)),
    )
    morning = at("2026-08-03T08:00", "Europe/Berlin")
    assert list(found.route(notice(), morning)) == ["oncall"]
    assert list(found.route(notice(), morning - 10**9)) == ["night"]


def test_what_follows_goes_where_the_trigger_went_whatever_the_time_is() -> None:
    found = router(RouteConfig(channels=("oncall",), times=("mon 00:00-24:00",)), RouteConfig(channels=("chat",)))
    for action in (Action.ACKNOWLEDGE, Action.RESOLVE):
        assert found.route(notice(action), SATURDAY, ("oncall",)) == {"oncall": SATURDAY}
    ended = notice(Action.RESOLVE, severity=Severity.TICKET)
    assert found.route(ended, SATURDAY, ("chat",)) == {"chat": SATURDAY}
    assert found.route(notice(Action.RESOLVE), MONDAY, ("gone",)) == {}


def test_an_update_goes_only_to_channels_that_show_it() -> None:
    assert list(router().route(notice(Action.UPDATE), MONDAY, ("oncall", "chat"))) == ["chat"]


# -- Hours ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "when", "is_open", "opens"),
    [
        (("mon-fri 08:00-18:00",), "2026-08-03T08:00", True, "2026-08-03T08:00"),
        (("mon-fri 08:00-18:00",), "2026-08-03T18:00", False, "2026-08-04T08:00"),
        (("mon-fri 08:00-18:00",), "2026-07-31T18:00", False, "2026-08-03T08:00"),
        (("fri-mon 10:00-11:00",), "2026-08-02T10:30", True, "2026-08-02T10:30"),
        (("fri 22:00-06:00",), "2026-08-01T05:59", True, "2026-08-01T05:59"),
        (("fri 22:00-06:00",), "2026-08-01T06:00", False, "2026-08-07T22:00"),
        (("sun 22:00-06:00",), "2026-08-03T01:00", True, "2026-08-03T01:00"),
        (("sat,sun",), "2026-08-03T00:00", False, "2026-08-08T00:00"),
        (("22:00-06:00",), "2026-08-03T12:00", False, "2026-08-03T22:00"),
        (("mon 08:00-09:00", "tue 07:00-08:00"), "2026-08-03T10:00", False, "2026-08-04T07:00"),
        ((), "2026-08-01T03:00", True, "2026-08-01T03:00"),
        (("mon 00:00-24:00",), "2026-08-03T23:59", True, "2026-08-03T23:59"),
    ],
)
def test_hours_of_the_week(texts: tuple[str, ...], when: str, is_open: bool, opens: str) -> None:
    found = parse_hours(texts, UTC, "here")
    assert found.open_at(at(when)) is is_open
    assert found.next_open(at(when)) == at(opens)


def test_hours_follow_summer_time() -> None:
    zone = ZoneInfo("Europe/Berlin")  # on 2026-10-25 the clocks go back at 03:00
    found = parse_hours(("08:00-18:00",), zone, "here")
    evening = at("2026-10-24T20:00", "Europe/Berlin")
    assert found.next_open(evening) - evening == 13 * HOUR


@given(
    st.integers(at("2025-01-01T00:00") // 10**9, at("2027-01-01T00:00") // 10**9),
    st.sampled_from(["mon-fri 08:00-18:00", "22:00-06:00", "sat", "sun 23:30-00:30", "wed 02:00-03:00"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]),
)
def test_the_next_opening_is_open_and_nothing_is_open_before(second: int, text: str, zone: str) -> None:
    found = parse_hours((text,), ZoneInfo(zone), "here")
    now = second * 10**9
    opens = found.next_open(now)
    assert now <= opens <= now + 8 * 24 * HOUR
    assert found.open_at(opens) or text == "wed 02:00-03:00"  # an hour that summer time leaves out
    assert not any(found.open_at(now + (opens - now) * part // 7) for part in range(7)) or opens == now


# -- Conditions on labels ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rule=gpu_lost", Matcher("rule", "gpu_lost")),
        ('node=~"dgx-.*"', Matcher("node", "dgx-.*", is_regex=True)),
        ("rack != r1", Matcher("rack", "r1", is_equal=False)),
        ("node!~'a|b'", Matcher("node", "a|b", is_regex=True, is_equal=False)),
        ("job=", Matcher("job", "")),
        (r'name="a \"b\" c"', Matcher("name", 'a "b" c')),
        ("name=a=b", Matcher("name", "a=b")),
    ],
)
def test_conditions_are_read_as_alertmanager_reads_them(text: str, expected: Matcher) -> None:
    assert parse(text) == expected
    assert parse(str(expected)) == expected


@pytest.mark.parametrize("text", ["node", "", "=x", "no de=x", "node=~(", "node=~" + "a" * 600])
def test_what_is_no_condition_is_said(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)


def test_a_pattern_covers_all_of_a_value_and_what_is_not_there_is_empty() -> None:
    labels = alert().matched_labels()
    assert matches_all(parse_all(["node=~dgx", "rule=gpu_lost"]), labels) is False
    assert matches_all(parse_all(["node=~dgx-0[12]", "severity=page", "subject=gpu"]), labels)
    assert matches_all(parse_all(["nothing="]), labels)
    assert not matches_all(parse_all(["nothing=~.+"]), labels)
