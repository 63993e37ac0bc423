"""What is still to be said when several notices of one incident wait."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.delivery.worker import plan
from alerts.notice import Delivery
from api.alerts import Action
from tests.alerts.notices import MINUTE, NOON, notice

STARTED = NOON - MINUTE
WORDS = {
    "T": (Action.TRIGGER, "new"),
    "W": (Action.TRIGGER, "worse"),
    "N": (Action.TRIGGER, "new_channel"),
    "U": (Action.UPDATE, "more"),
    "A": (Action.ACKNOWLEDGE, "acknowledged"),
    "R": (Action.RESOLVE, "resolved"),
}


def chain(words: str, *, tries: int = 0, started: bool = True) -> list[Delivery]:
    """Deliveries by their letters; `tries` are the first one's."""
    made = []
    for number, letter in enumerate(words, 1):
        action, reason = WORDS[letter]
        at = NOON + number if started else STARTED - MINUTE + number
        made.append(
            Delivery(
                id=number,
                channel="c",
                notice=notice(action, at=at, reason=reason),
                created=at,
                due=at,
                tries=tries if number == 1 else 0,
            )
        )
    return made


@pytest.mark.parametrize(
    ("words", "tries", "started", "sends", "superseded"),
    [
        pytest.param("T", 0, True, 1, (), id="a trigger"),
        pytest.param("TR", 0, True, None, (1, 2), id="over before it was told: nothing"),
        pytest.param("TUAR", 0, True, None, (1, 2, 3, 4), id="whatever was between"),
        pytest.param("TR", 1, True, 2, (1,), id="it was tried: it may have arrived"),
        pytest.param("TR", 0, False, 2, (1,), id="of an earlier process: it may have arrived"),
        pytest.param("NR", 0, True, None, (1, 2), id="over before a new channel was told: nothing"),
        pytest.param("WR", 0, True, 2, (1,), id="told before: its end must be told"),
        pytest.param("UR", 0, True, 2, (1,), id="an update was told before too"),
        pytest.param("UUU", 0, True, 1, (2,), id="the last update, in the first one's place"),
        pytest.param("TUU", 0, True, 1, (2,), id="a trigger with the newest facts"),
        pytest.param("UT", 0, True, 2, (1,), id="an update before a trigger"),
        pytest.param("TW", 0, True, 1, (), id="grown worse before it was told: one page"),
        pytest.param("AA", 0, True, 2, (1,), id="the last acknowledgement"),
        pytest.param("RT", 0, True, 1, (), id="an end, then a new beginning"),
    ],
)
def test_what_is_sent_of_a_chain(
    words: str, tries: int, started: bool, sends: int | None, superseded: tuple[int, ...]
) -> None:
    found = plan(chain(words, tries=tries, started=started), lambda _: False, STARTED)
    assert (found.send.id if found.send else None, found.superseded) == (sends, superseded)


def test_a_trigger_carries_the_newest_facts_and_is_settled_with_them() -> None:
    waiting = chain("TUW")
    found = plan(waiting, lambda _: False, STARTED)
    assert found.send is not None
    assert found.covered == (3,)
    assert found.send.notice.incident == waiting[2].notice.incident
    assert (found.send.notice.action, found.send.notice.reason) == (Action.TRIGGER, "new")


def test_a_ticket_that_was_held_over_a_restart_and_is_over_was_never_told() -> None:
    held = chain("TR", started=False)
    held[0] = msgspec.structs.replace(held[0], due=NOON)
    assert plan(held, lambda _: False, STARTED).send is None


def test_what_is_too_old_goes_and_the_rest_is_told() -> None:
    found = plan(chain("TW"), lambda one: one.id == 1, STARTED)
    assert found.expired == (1,)
    assert found.send is not None
    assert found.send.id == 2


@given(st.text("TWUAR", max_size=8), st.integers(0, 2), st.booleans(), st.sets(st.integers(1, 8)))
def test_nothing_is_forgotten_nothing_is_said_twice_and_ends_are_told(
    words: str, tries: int, started: bool, old: set[int]
) -> None:
    waiting = chain(words, tries=tries, started=started)
    sent: list[Delivery] = []
    settled: list[int] = []
    while waiting:
        found = plan(waiting, lambda one: one.id in old, STARTED)
        done = [*found.superseded, *found.expired]
        if found.send is not None:
            sent.append(found.send)
            done += [found.send.id, *found.covered]
        assert done, "a chain must come to its end"
        settled += done
        waiting = [one for one in waiting if one.id not in done]
    assert sorted(settled) == list(range(1, len(words) + 1))
    assert [one.id for one in sent] == sorted({one.id for one in sent})
    living = [letter for number, letter in enumerate(words, 1) if number not in old]
    if living and living[-1] != "R":
        assert sent, "what is not over must be told"
    if "R" in living and (tries or not started) and living == list(words):
        assert any(one.notice.action is Action.RESOLVE for one in sent)
