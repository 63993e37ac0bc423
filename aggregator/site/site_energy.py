"""Energy and use of the nodes of all members, in sums by shard group: each member counts the whole site.

A group is one member's at a time, so that a node that moves is counted once. Where a group is not heard its last sums
count until it has a member again; after that the site's draw is not known, and never less than it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from aggregator.electrical.energy_sampler import GPU_JOULES, NODE_SUMS
from power.report.energy_ledger import EnergySample
from power.wiring import Floats
from telemetry.text.decoders import of_msgpack
from telemetry.wire.topics import shard_of

HOLD_EXTRA_SECONDS = 5.0
"""Seconds beyond a member's death for which last sums count: its groups are taken over by then."""
_GROUPS = 256


class EnergyShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of a member, once a second. Fields are only added, with a default; unknown columns are left out."""

    session: int
    """Random per start of the sender: numbers begin again."""
    number: int
    epochs: dict[str, int]
    """Epochs of the groups that it holds."""
    columns: dict[str, bytes]
    """float32, little-endian, by `NODE_SUMS`: of its groups in the order of `epochs`."""


class SiteEnergy:
    """The sums of all groups: those that we say of our own, and those that we hear of all."""

    def __init__(self, session: int, dead_after_seconds: float) -> None:
        """`dead_after_seconds`: after which a silent member is dead."""
        self._session, self._number = session, 0
        self._hold = dead_after_seconds + HOLD_EXTRA_SECONDS
        self._names: tuple[str, ...] = ()
        self._group_of = np.zeros(0, np.intp)
        """Group of each of our nodes."""
        self._own: Floats = np.zeros((_GROUPS, len(NODE_SUMS)))
        self._heard: Floats = np.zeros((_GROUPS, len(NODE_SUMS)))
        self._heard_at: Floats = np.full(_GROUPS, -np.inf)
        self._order: list[tuple[int, int, int]] = [(-1, 0, -1)] * _GROUPS
        """Epoch, session and number of the newest message about each group."""

    def joined(self, sample: EnergySample, now: float) -> EnergySample:
        """Return the sample of the whole site for that of our own nodes."""
        self._note(sample)
        sums = dict(zip(NODE_SUMS, self._heard.sum(axis=0).tolist(), strict=True))
        self._heard[:, GPU_JOULES] = 0.0
        whole = bool((now - self._heard_at <= self._hold).all())
        return replace(
            sample,
            whole=whole,
            watts=sums["watts"] if whole and sums["nodes"] else np.nan,
            nodes=int(sums["nodes"]),
            gpu_joules=sums["gpu_joules"],
            gpus=int(sums["gpus"]),
            busy_gpus=sums["busy_gpus"],
            idle_gpus=int(sums["idle_gpus"]),
            idle_watts=sums["idle_watts"],
            unmapped_watts=sums["unmapped_watts"] if whole and sums["unmapped_nodes"] else np.nan,
            silent_watts=sums["silent_watts"],
        )

    def _note(self, sample: EnergySample) -> None:
        if sample.node_names is not self._names:
            self._names = sample.node_names
            self._group_of = np.array([int(shard_of(name), 16) for name in self._names], np.intp)
        gained = self._own[:, GPU_JOULES].copy()
        self._own = np.zeros_like(self._own)
        np.add.at(self._own, self._group_of, sample.node_sums)
        self._own[:, GPU_JOULES] += gained  # since the last message

    def message(self, epochs: Mapping[str, int]) -> bytes:
        """Return what is to be said of the groups that we hold. `epochs`: of each of them."""
        self._number += 1
        rows = [int(group, 16) for group in epochs]
        values = self._own[rows].astype("<f4")
        self._own[:, GPU_JOULES] = 0.0
        columns = {name: values[:, number].tobytes() for number, name in enumerate(NODE_SUMS)}
        return msgspec.msgpack.encode(EnergyShare(self._session, self._number, dict(epochs), columns))

    def receive(self, payload: bytes, now: float) -> bool:
        """Take a message in; return whether any of it counts."""
        try:
            share = of_msgpack(EnergyShare).decode(payload)
            rows = [int(group, 16) for group in share.epochs]
            joint = b"".join(share.columns[name] for name in NODE_SUMS)
            values = np.frombuffer(joint, "<f4").reshape(len(NODE_SUMS), len(rows)).T
        except (msgspec.MsgspecError, ValueError, KeyError):
            return False
        if any(not 0 <= row < _GROUPS for row in rows) or not np.isfinite(values).all():
            return False
        counts = False
        for row, epoch, its in zip(rows, share.epochs.values(), values, strict=True):
            known_epoch, session, number = self._order[row]
            if epoch < known_epoch or (epoch == known_epoch and session == share.session and share.number <= number):
                continue  # of a member that holds it no more, or late
            counts = True
            gained = self._heard[row, GPU_JOULES]
            self._order[row] = epoch, share.session, share.number
            self._heard[row], self._heard_at[row] = its, now
            self._heard[row, GPU_JOULES] += gained
        return counts
