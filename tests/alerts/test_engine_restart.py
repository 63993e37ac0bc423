"""An alert's life over restarts and steps of the clock: what fires is never notified twice, nor lost."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.engine.engine import RuleEngine
from alerts.engine.restore import AlertRecord
from alerts.rules.rule import load
from api.alerts import Alert, AlertState
from telemetry.gap import GAP, Gap
from tests.alerts.test_engine import Plant

RULES = [rule for rule in load() if rule.name in {"recovery_action", "gpu_hung", "thermal_limit"}]
STEP = 15.0
WELL, WANTS, HOT, HUNG, UNREAD = range(5)
READINGS: dict[int, dict[str, float]] = {
    WELL: {},
    WANTS: {"gpu_recovery_action": 1.0},
    HOT: {"gpu_temperature_celsius": 95.0},
    HUNG: {"gpu_temperature_celsius": GAP[Gap.TIMED_OUT]},
    UNREAD: {"gpu_temperature_celsius": GAP[Gap.ERROR], "gpu_recovery_action": GAP[Gap.ERROR]},
}
HISTORIES = st.lists(st.integers(0, 4), min_size=2, max_size=30)


class Stepped(Plant):
    """A plant of one GPU whose wall clock can be set."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = RuleEngine(RULES)
        self.ahead = 0
        """ns by which the wall clock was set."""
        self.add("a", ["GPU-a0"])

    @property
    def wall(self) -> int:
        return super().wall + self.ahead

    def see(self, condition: int) -> list[Alert]:
        """Let a tick pass in which the GPU is so."""
        self.wrong["GPU-a0"] = READINGS[condition]
        return self.tick(seconds=STEP)

    def restart(self) -> None:
        """Let another engine go on with what this one wrote down."""
        written = msgspec.json.encode(self.engine.snapshot(self.wall))
        self.engine = RuleEngine(RULES)
        records = msgspec.json.decode(written, type=list[AlertRecord])
        self.engine.restore(records, self.now, self.wall)

    def states(self) -> list[tuple[str, str, int]]:
        """What is pending or fires, and since when."""
        found = [one for one in self.engine.alerts() if one.state is not AlertState.RESOLVED]
        return sorted((one.key, one.state.value, one.since) for one in found)


def told(changes: list[Alert]) -> list[tuple[str, str]]:
    """Key and state of what changed."""
    return sorted((alert.key, alert.state.value) for alert in changes)


@settings(max_examples=40, deadline=None)
@given(history=HISTORIES, restarts=st.sets(st.integers(0, 29), max_size=4))
def test_restarts_change_nothing(history: list[int], restarts: set[int]) -> None:
    one, other = Stepped(), Stepped()
    for tick, condition in enumerate(history):
        assert told(one.see(condition)) == told(other.see(condition))
        if tick in restarts:
            other.restart()
        assert one.states() == other.states()


@settings(max_examples=40, deadline=None)
@given(history=HISTORIES, steps=st.lists(st.integers(-(10**6), 10**6), min_size=30, max_size=30))
def test_steps_of_the_clock_change_nothing(history: list[int], steps: list[int]) -> None:
    """Seconds are counted by the monotonic clock; the wall clock is for people."""
    one, other = Stepped(), Stepped()
    for condition, step in zip(history, steps, strict=False):
        other.ahead = step * 10**9
        assert told(one.see(condition)) == told(other.see(condition))


@settings(max_examples=40, deadline=None)
@given(history=HISTORIES, step=st.integers(-(10**7), 10**7))
def test_what_fires_goes_on_over_a_restart_with_another_clock(history: list[int], step: int) -> None:
    plant = Stepped()
    for condition in history:
        plant.see(condition)
    firing = [(key, since) for key, state, since in plant.states() if state == "firing"]
    plant.ahead = step * 10**9
    plant.restart()
    assert [(key, since) for key, state, since in plant.states() if state == "firing"] == firing
    fired = [alert.key for alert in plant.see(history[-1]) if alert.state is AlertState.FIRING]
    assert not {key for key, _ in firing} & set(fired)
