"""GPUs of jobs over several members: what conditions on peers of one member ask the others for.

A member asks about the groups that may be elsewhere too, by their identities, and gets of each what was compared there at
the newest moment (`alerts.rules.peers_elsewhere`). Without such a group nothing is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping

import msgspec
import numpy as np

from aggregator.cluster.ask import MemberAnswers, decoded
from aggregator.cluster.member import ClusterMember
from aggregator.cluster.port import CoordinationError
from aggregator.impairments import Impairments
from alerts.rules.peers_elsewhere import SETTLE_SECONDS, STATED, Identities, PeersElsewhere, StatedValues
from alerts.rules.row_memory import Floats, Index
from telemetry.text import counted
from telemetry.text.decoders import of_msgpack

ASK_SECONDS = 10.0
"""Seconds between two questions: at least one falls into each moment after the others have stated its values."""
ANSWER_SECONDS = 2.0
"""Seconds in which a member must answer, and else is out of sight."""


class PeersQuestion(msgspec.Struct, frozen=True):
    """A question for what a member compared. Fields are only added, with a default."""

    groups: bytes = b""
    """Identities, ascending, uint64."""
    known: dict[str, int] = {}
    """Moment of what it stated last, by comparison: that is not sent again."""


class StatedPart(msgspec.Struct, frozen=True):
    """A statement as it travels. Fields are only added, with a default."""

    moment: int
    places: bytes = b""
    """Places of its groups in the question, uint32."""
    rows: bytes = b""
    """uint32."""
    compared: bytes = b""
    """uint32."""
    kind: str = "<f4"
    values: bytes = b""


class PeersPart(msgspec.Struct, frozen=True):
    """A member's answer. Fields are only added, with a default."""

    statements: dict[str, StatedPart] = {}
    """By comparison."""


class ClusterPeers:
    """The questions of a member about GPUs of its jobs elsewhere, and its answers; `run` it."""

    def __init__(
        self, elsewhere: PeersElsewhere, member: ClusterMember, impairments: Impairments, clock: Callable[[], float]
    ) -> None:
        """`clock`: the monotonic seconds that the rules are evaluated with."""
        self._elsewhere, self._member, self._clock = elsewhere, member, clock
        self._impairments = impairments
        self._blind: Identities = np.zeros(0, np.uint64)
        """Groups without a verdict, ascending, and since when that is, monotonic seconds."""
        self._blind_since: Floats = np.zeros(0)
        self._answers = MemberAnswers(member.coordination, member.name)
        self._epochs: Mapping[str, int] = {}

    async def run(self) -> None:
        """Answer the others and ask them until cancelled."""
        while True:
            try:
                async with self._answers.serving({"peers": self.answer}):
                    while True:
                        await self.ask()
                        await asyncio.sleep(ASK_SECONDS)
            except CoordinationError:
                await asyncio.sleep(1.0)

    async def ask(self) -> None:
        """Ask the others once about the groups that may be theirs too."""
        elsewhere, planner, wanted = self._elsewhere, self._member.planner, self._elsewhere.wanted
        if not len(wanted):
            self._report({}, {})
            return
        others = self._member.others(self._clock())
        bodies = await self._answers.ask_all(others, "peers", lambda name: question_to(name, elsewhere), ANSWER_SECONDS)
        answers = {}
        for name, part in decoded(bodies, PeersPart).items():
            with contextlib.suppress(ValueError):  # of another release: none
                answers[name] = stated_values(part, wanted)
        epochs = planner.epochs()
        moved, self._epochs = epochs != self._epochs, epochs
        members = planner.members
        processes = {name: members[name].beat.start if name in members else "" for name in others}
        elsewhere.hear(wanted, answers, processes, self._clock(), moved=moved)
        self._report(others, answers)

    def _report(self, others: Collection[str], answers: Collection[str]) -> None:
        """Report the jobs that have had no verdict for longer than a move takes, and the members to blame."""
        now, blind = self._clock(), self._elsewhere.blind
        since = np.full(len(blind), now)
        _, here, before = np.intersect1d(blind, self._blind, return_indices=True)
        since[here] = self._blind_since[before]
        self._blind, self._blind_since = blind, since
        long = int((now - since > SETTLE_SECONDS).sum())
        if not long:
            self._impairments.clear("peers_unheard", "cluster/peers")
            return
        why = [f"{name} does not answer" for name in sorted(others) if name not in answers]
        why += [f"{name} has another time than we have" for name in sorted(answers) if self._elsewhere.apart(name)]
        text = f"{counted(long, 'group')} of GPUs of a job and a model can't be compared"
        self._impairments.report("peers_unheard", "cluster/peers", f"{text}: {'; '.join(why)}" if why else text)

    async def answer(self, body: bytes) -> bytes:
        """Answer the question of another member."""
        return answer_to(body, self._elsewhere)


def question_to(member: str, elsewhere: PeersElsewhere) -> bytes:
    """Return the question to a member."""
    groups = elsewhere.wanted.astype("<u8").tobytes()
    return msgspec.msgpack.encode(PeersQuestion(groups, elsewhere.moments(member)))


def answer_to(body: bytes, elsewhere: PeersElsewhere) -> bytes:
    """Return the answer to a question."""
    asked = of_msgpack(PeersQuestion).decode(body)
    wanted = np.frombuffer(asked.groups, "<u8").astype(np.uint64)
    found = elsewhere.answer(wanted, asked.known)
    return msgspec.msgpack.encode(PeersPart({key: _part(each, wanted) for key, each in found.items()}))


def stated_values(part: PeersPart, wanted: Identities) -> dict[str, StatedValues]:
    """Return what an answer states, by comparison. Raises `ValueError` where it does not fit the question."""
    return {key: _statement(its, wanted) for key, its in part.statements.items()}


def _part(statement: StatedValues, wanted: Identities) -> StatedPart:
    places = np.searchsorted(wanted, statement.identities)
    kind = statement.values.dtype.newbyteorder("<").str
    return StatedPart(
        statement.moment,
        _small(places),
        _small(statement.rows),
        _small(statement.compared),
        kind,
        statement.values.astype(kind).tobytes(),
    )


def _small(numbers: Index) -> bytes:
    return numbers.astype("<u4").tobytes()


def _statement(part: StatedPart, wanted: Identities) -> StatedValues:
    """Return a statement. Raises `ValueError` where it does not fit the question or itself."""
    if part.kind not in {"<f4", "<f8"}:
        raise ValueError(f"values of {part.kind}")
    places, rows, compared = (
        np.frombuffer(body, "<u4").astype(np.intp) for body in (part.places, part.rows, part.compared)
    )
    values = np.frombuffer(part.values, part.kind)
    if not len(places) == len(rows) == len(compared) or (places >= len(wanted)).any():
        raise ValueError("its groups were not asked for")
    if (np.diff(places) <= 0).any() or np.minimum(compared, STATED).sum() != len(values):
        raise ValueError("its values are not those of its groups")
    return StatedValues(part.moment, wanted[places], rows, compared, values)
