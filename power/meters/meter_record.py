"""The newest readings and the state of one meter. Pure: times are arguments.

The period of a meter that publishes by itself is learnt. A device that reports itself offline is
stale at once, whatever its period.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from power.meters.base import AttachedMeter, Attachment
from power.meters.nut import Nut
from power.meters.reading import MeterReading
from power.meters.sample import OFFLINE, REVERSED, WHOLE, MeterSample

LONGEST = 600.0
"""Longest period, seconds: a reading is stale after three of them."""
SLOW = 60.0
"""Period from which a meter is reported as slow, seconds: a breaker is faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterState:
    """State of a meter, for people."""

    name: str
    type: str
    where: str
    """Broker and topic, or address."""
    targets: tuple[str, ...]
    """`circuit R12-A.L1` for each thing that it is on."""
    last_seen: float | None = None
    """Monotonic seconds; None before the first reading."""
    period: float = 0.0
    online: bool | None = None
    """Whether the device or its server reports it online; None where it does not report that."""
    readings: int = 0
    malformed: int = 0
    """Malformed messages and answers."""
    errors: int = 0
    """Requests without an answer."""
    message: str = ""
    """Problem and cure; empty when all is well."""


class PeriodEstimator:
    """Estimator of a meter's period: the second longest of the last gaps, to ignore one outage."""

    def __init__(self, least: float, fixed: bool) -> None:
        self._least = least
        self._fixed = fixed
        self._gaps: deque[float] = deque(maxlen=8)
        self._last: float | None = None

    def observe(self, now: float) -> None:
        """Record an arrival."""
        if self._last is not None and now > self._last:
            self._gaps.append(now - self._last)
        self._last = now

    def interrupt(self) -> None:
        """Ignore the gap until the next arrival: the meter was away."""
        self._last = None

    @property
    def period(self) -> float:
        """Seconds."""
        if self._fixed or not self._gaps:
            return self._least
        longest = sorted(self._gaps)[-2:]
        return min(LONGEST, max(self._least, longest[0]))


class MeterRecord:
    """Newest readings and state of one meter."""

    def __init__(self, meter: AttachedMeter, where: str, *, asked: bool) -> None:
        """`asked`: whether the meter is polled, so that its period is known."""
        self.meter = meter
        config = meter.config
        self._estimator = PeriodEstimator(config.period, asked or config.every is not None)
        self._newest: dict[tuple[str, str, str | None], MeterReading] = {}
        self._reversed: set[str] = set()
        self._reported: set[str] = set()
        self.state = MeterState(
            name=meter.name,
            type=str(config.__struct_config__.tag),
            where=where,
            targets=tuple(f"{p.kind} {p.target}{'.' + p.pole if p.pole else ''}" for p in meter.attachments),
            period=config.period,
        )

    def add(self, samples: Iterable[MeterSample], now: float) -> list[str]:
        """Add samples; return the messages to log about them, each once."""
        samples = list(samples)
        made = [one for sample in samples for one in self._readings_of(sample, now)]
        if not made:
            return self._mismatch(samples)
        self._estimator.observe(now)
        period = self._estimator.period
        for one in made:
            key = (one.kind, one.target, one.pole)
            self._newest[key] = msgspec.structs.replace(one, period=period)
        messages = self._reversals(made)
        message = (
            "" if period <= SLOW else f"it reports every {period:.0f} s, slower than a breaker trips: set it to 10 s"
        )
        if message and message != self.state.message:
            messages.append(message)
        self.state = replace(
            self.state,
            last_seen=now,
            period=period,
            readings=self.state.readings + len(made),
            message=message,
            online=True if self.state.online is not None else None,
        )
        return messages

    def presence(self, online: bool, now: float) -> bool:
        """Record whether the device is online; return whether that changed."""
        changed = self.state.online is not online
        self.state = replace(self.state, online=online)
        if not online:
            self.lost(now, "the device reports itself offline")
        elif changed:
            self.state = replace(self.state, message="")
        return changed

    def lost(self, now: float, message: str) -> None:
        """Mark the device as away: its readings are stale at once."""
        self._estimator.interrupt()
        self.state = replace(self.state, message=message)
        for key, one in self._newest.items():
            if OFFLINE not in one.flags:
                at = min(one.at, now - 3 * max(one.period, 10.0) - 1e-3)
                self._newest[key] = msgspec.structs.replace(one, at=at, flags=(*one.flags, OFFLINE))

    def malformed(self, reason: str, message: str) -> bool:
        """Count a malformed message; return True the first time for each reason."""
        changed = reason not in self._reported
        self._reported.add(reason)
        self.state = replace(self.state, malformed=self.state.malformed + 1, message=message)
        return changed

    def failed(self, message: str) -> bool:
        """Count a request without an answer; return whether the message changed."""
        changed = self.state.message != message
        self._estimator.interrupt()
        self.state = replace(self.state, errors=self.state.errors + 1, message=message)
        return changed

    def disconnected(self) -> None:
        """Ignore the next gap: the connection to the meter was lost."""
        self._estimator.interrupt()

    def note(self, message: str) -> bool:
        """Set the message for people; return whether it changed."""
        changed = self.state.message != message
        self.state = replace(self.state, message=message)
        return changed

    def readings(self) -> tuple[MeterReading, ...]:
        """Return the newest reading of each target and pole."""
        return tuple(self._newest.values())

    def _readings_of(self, sample: MeterSample, now: float) -> list[MeterReading]:
        attachments = [
            attachment
            for attachment in self.meter.attachments
            if sample.channel == attachment.channel and sample.part_of is None
        ]
        found = [self._reading(sample, attachment, attachment.pole, now) for attachment in attachments]
        for attachment in self.meter.attachments:
            if sample.part_of is not None and sample.channel == attachment.channel:
                found.append(self._reading(sample, attachment, attachment.pole, now))
            elif sample.part_of == attachment.channel and attachment.pole is None and attachment.kind == "circuit":
                found.append(self._reading(sample, attachment, sample.pole, now))
        if (
            isinstance(self.meter.config, Nut)
            and sample.part_of is None
            and sample.channel != WHOLE
            and not any(
                attachment.kind == "ups"
                for attachment in self.meter.attachments
                if attachment.channel in {WHOLE, sample.channel}
            )
        ):
            # A UPS is a thing of its own, beside what it feeds.
            found.append(self._reading(sample, Attachment(sample.channel, "ups", sample.channel), None, now))
        return found

    def _reading(self, sample: MeterSample, attachment: Attachment, pole: str | None, now: float) -> MeterReading:
        config = self.meter.config
        watts, amps = sample.watts, sample.amps
        flags = sample.flags
        if watts is not None and watts < 0:
            # A clamp around the wrong way reads negative; the power is the same.
            watts, flags = -watts, (*flags, REVERSED)
        return MeterReading(
            meter=self.meter.name,
            kind=attachment.kind,
            target=attachment.target,
            pole=pole,
            parts=0 if sample.part_of not in {None, attachment.channel} else sample.parts,
            source=config.source_of(attachment.kind, sample),
            at=now,
            period=config.period,
            watts=watts,
            volt_amps=None if sample.volt_amps is None else abs(sample.volt_amps),
            amps=None if amps is None else abs(amps),
            neutral_amps=None if sample.neutral_amps is None else abs(sample.neutral_amps),
            volts=sample.volts,
            power_factor=sample.power_factor,
            energy_joules=sample.energy_joules,
            limit_watts=config.limit_watts,
            limit_amps=config.limit_amps,
            load_ratio=sample.load_ratio,
            runtime_seconds=sample.runtime_seconds,
            flags=flags,
        )

    def _reversals(self, made: list[MeterReading]) -> list[str]:
        messages = []
        for one in made:
            what = one.target if one.pole is None else f"{one.target} {one.pole}"
            if REVERSED in one.flags and what not in self._reversed:
                self._reversed.add(what)
                messages.append(f"{what} reads below 0 W: the clamp or plug is the wrong way round; the amount is used")
        return messages

    def _mismatch(self, samples: list[MeterSample]) -> list[str]:
        """Return a message for samples of which none belongs to an attachment."""
        if not samples or isinstance(self.meter.config, Nut):
            return []
        parts = sorted({sample.channel for sample in samples} - {WHOLE})
        message = f"it does not report {', '.join(attachment.channel or 'a whole' for attachment in self.meter.attachments)}; it reports {', '.join(parts) or 'only a whole, so write on'}"
        if message == self.state.message or self.state.readings:
            return []
        self.state = replace(self.state, message=message)
        return [message]
