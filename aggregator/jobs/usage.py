"""Use of GPUs by jobs: readings of the fleet, split among the holders of a GPU by time.

Samples wait some seconds before they are counted, since a node says only afterwards that a job has
begun or ended; the energy of an interval in which a holder changes is split at that moment. All of it
is columns: a row a GPU, a row an interval of a holder. Time is an argument.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from aggregator.jobs.traffic import COUNTERS, TrafficRates
from api.jobs import EnergyFrom
from power.report.energy_ledger import IDLE_BELOW
from telemetry.catalogue import BY_NAME
from telemetry.fleet import Fleet
from telemetry.metric import Table
from telemetry.wire.schema import GPU_FAST, GPU_SLOW

Floats = npt.NDArray[np.float64]
Gauges = npt.NDArray[np.float32]
"""As in the fleet: some samples wait, of 8 MB each at 100,000 GPUs."""
Index = npt.NDArray[np.intp]
Times = npt.NDArray[np.int64]

LAG_SECONDS = 15.0
"""Age at which a sample is counted: by then its node has sent who held its GPUs."""
LONGEST_HOLD = 30.0
"""Seconds for which a reading stands at most; a longer interval without one is unknown."""
MOST_WATTS = 5000.0
"""Mean power of a GPU above which a difference of counters is a reset or a fault."""
BINS = 40
"""Bins of utilisation, 2.5 % each."""
FOREVER = np.iinfo(np.int64).max
_REASON = "gpu_clocks_event_"
LIMITS = tuple(
    name for name in BY_NAME if name.startswith(_REASON) and not name.endswith("_total") and name != f"{_REASON}idle"
)
"""Metrics of the reasons for limited clocks."""
LIMIT_WORDS = tuple(name.removeprefix(_REASON) for name in LIMITS)


class Holder(NamedTuple):
    """A job on a GPU from a time to a time, with its share of the GPU."""

    job: Hashable
    begin: int
    """ns since 1970."""
    end: int
    """`FOREVER` while it lasts."""
    share: float


class GpuAccount(msgspec.Struct, kw_only=True):
    """Sums of the use of a GPU by a job so far, as the store keeps them."""

    node: str
    gpu: str
    held: float = 0.0
    """Seconds that were counted; an older release did not count them."""
    its_part: float = 0.0
    """The same times the job's share of the GPU."""
    known: float = 0.0
    """Seconds with a utilisation."""
    busy: float = 0.0
    """Utilisation times seconds."""
    joules: float = 0.0
    joule_seconds: float = 0.0
    wall: float = 0.0
    wall_seconds: float = 0.0
    beside: float = 0.0
    """Of `wall`, joules that are not the GPU's own: its equal part of the node's fans, processors and losses."""
    beside_seconds: float = 0.0
    cost: float = 0.0
    cost_seconds: float = 0.0
    activity_seconds: float = 0.0
    """Seconds with the activity of multiprocessors, tensor cores and memory."""
    sm_active: float = 0.0
    """Share times seconds, as the next two."""
    tensor_active: float = 0.0
    dram_active: float = 0.0
    occupancy_seconds: float = 0.0
    sm_occupancy: float = 0.0
    pcie_seconds: float = 0.0
    """Seconds with a rate of the traffic over PCIe."""
    pcie_bytes: float = 0.0
    nvlink_seconds: float = 0.0
    nvlink_bytes: float = 0.0
    idle_known: float = 0.0
    """Seconds of which it is known whether the GPU was idle; an older release did not count it."""
    idle_seconds: float = 0.0
    """Seconds with a utilisation below `IDLE_BELOW`."""
    idle_cost: float = 0.0
    memory_peak: float | None = None
    limits: dict[str, float] = {}
    use: dict[int, float] = {}
    """Seconds by bin of utilisation."""
    shared: bool = False
    at: int = 0
    """When `counter` was read, ns since 1970; 0 where there is none."""
    counter: float = 0.0
    """Joules of the GPU's own counter when it was counted last."""
    first: str = ""
    """Month that was counted first; empty where the sums at the edges of months are not known."""
    month: str = ""
    """Month that was counted last."""
    edges: dict[str, dict[str, float]] = {}
    """Sums at the begin of each month that the job ran into, by its name."""
    counters: dict[int, float] = {}
    """Joules of the GPU's own counter at the edges of the job's allocations, by ns since 1970, where they are known."""
    energy_from: EnergyFrom = EnergyFrom.SAMPLES


class UnheldUse(msgspec.Struct, kw_only=True):
    """Sums of the GPUs that no job held."""

    seconds: float = 0.0
    known: float = 0.0
    """As those of an account."""
    busy: float = 0.0
    joules: float = 0.0
    joule_seconds: float = 0.0
    wall: float = 0.0
    wall_seconds: float = 0.0
    cost: float = 0.0
    cost_seconds: float = 0.0
    idle_known: float = 0.0
    idle_seconds: float = 0.0
    idle_cost: float = 0.0


class UnheldKey(NamedTuple):
    """The month of a sum of unheld GPUs, and of which nodes it is."""

    period: str
    """`2026-11`."""
    reported: bool
    """Whether their nodes say who holds each GPU: of others nobody knows whether they were free."""


class CountedMonth(NamedTuple):
    """The month of a sample. A reading from before its begin is counted to the month before."""

    name: str = ""
    start: int = 0
    """ns since 1970."""
    before: str = ""
    """Name of the month before."""


NO_MONTH = CountedMonth()

SUMS = (
    "known", "busy", "joules", "joule_seconds", "wall", "wall_seconds", "cost", "cost_seconds",
    "activity_seconds", "sm_active", "tensor_active", "dram_active", "occupancy_seconds", "sm_occupancy",
    "pcie_seconds", "pcie_bytes", "nvlink_seconds", "nvlink_bytes",
    "idle_known", "idle_seconds", "idle_cost", "held", "its_part", "beside", "beside_seconds",
)  # fmt: skip
_FINE = np.array([1e9 if name.endswith("cost") else 1e3 for name in SUMS])
"""Parts of each unit to which a sum is kept: a job of seconds costs a ten-thousandth."""
ACTIVITY = ("gpu_sm_active_ratio", "gpu_tensor_active_ratio", "gpu_dram_active_ratio")


@dataclass(slots=True)
class _Sample:
    """Readings of all GPU rows of the meter at one time."""

    at: Times
    busy: Gauges
    watts: Gauges
    counter: Floats
    memory: Gauges
    limits: npt.NDArray[np.bool_]
    activity: Gauges
    """Shape (rows, 3): shares as in `ACTIVITY`."""
    occupancy: Gauges
    """Shape (rows, 1)."""
    traffic: Floats
    """Bytes a second, shape (rows, 2): over PCIe and over NVLink."""
    wall: Floats
    """Watts at the wall of each GPU and of its part of the rest of its node."""
    price: float
    """Money for a joule at the wall; NaN without a tariff."""
    taken: float
    reported: npt.NDArray[np.bool_]
    """Whether the node of each row says who holds its GPUs."""
    month: CountedMonth


class _Reach(NamedTuple):
    """Part of the time of a sample, by row, ns since 1970."""

    step: Times
    """Begin of the time for which readings stand."""
    until: Times
    since: Times
    """Begin of the time whose energy is known."""


class UsageMeter:
    """Accounts of jobs on GPUs. One loop owns it."""

    def __init__(self, lag: float = LAG_SECONDS) -> None:
        self._lag = lag
        self._rows: dict[str, int] = {}
        """Own row of each GPU."""
        self._free: list[int] = []
        self._version = -1
        self._gone: set[str] = set()
        """GPUs whose readings begin anew should they come back."""
        self._of_fleet: Index = np.empty(0, np.intp)
        """Own row of each GPU row of the fleet; the last row is for free ones."""
        self._owner: Index = np.empty(0, np.intp)
        """Position of the node of each GPU row of the fleet."""
        self._sizes: Floats = np.empty(0)
        self._waiting: deque[_Sample] = deque()
        self._traffic = TrafficRates()
        self._last_at: Times = np.zeros(1, np.int64)
        """When each row's last counted sample was read."""
        self._counted_at: Times = np.zeros(1, np.int64)
        """When each row's counter was counted last."""
        self._whole_from: Times = np.full(1, FOREVER)
        """Since when each row's energy is counted without a hole; 0 where that goes on from what was stored."""
        self._counter: Floats = np.full(1, np.nan)
        self.joules: Floats = np.zeros(1)
        """Energy of each row since the start, whoever held it."""
        self.unheld: dict[UnheldKey, UnheldUse] = {}
        """Use of the GPUs that no job held."""
        self._held: dict[str, tuple[Holder, ...]] = {}
        self._columns: dict[str, list[_HolderColumns]] = {}
        """The same as numbers: a GPU keeps its row and a holder its slot while the GPU is held."""
        self._slots: dict[tuple[Hashable, str], int] = {}
        self._free_slots: list[int] = []
        self._sums: Floats = np.zeros((64, len(SUMS)))
        self._peak: Floats = np.full(64, np.nan)
        self._limits: Floats = np.zeros((64, len(LIMITS)))
        self._use: Floats = np.zeros((64, BINS))
        self._shared: npt.NDArray[np.bool_] = np.zeros(64, np.bool_)
        self._month = ""
        """Newest month that was counted."""
        self._edges: dict[int, dict[str, Floats]] = {}
        """Sums of each slot at the begin of the months that it ran into."""
        self._first: dict[int, str] = {}
        """Month that was counted first of each slot."""
        self._stored_month: dict[int, str] = {}
        """Month of what was stored of a slot, until a month is counted here."""
        self._no_edges: set[int] = set()
        """Slots of which sums were stored without their month."""
        self._dirty = True
        self._flat: tuple[Index, Times, Times, Index, Floats] = _flat(())

    # -- Holders -----------------------------------------------------------------------------------

    def hold(self, gpu: str, holders: Sequence[Holder]) -> None:
        """Replace the holders of a GPU: those that last, and those that ended within the lag."""
        if holders:
            self._held[gpu] = tuple(holders)
            row = self._row(gpu)
            self._columns[gpu] = [
                (row, each.begin, each.end, self._slot(each.job, gpu), each.share) for each in holders
            ]
        else:
            self._held.pop(gpu, None)
            self._columns.pop(gpu, None)
        self._dirty = True

    def holders(self, gpu: str) -> tuple[Holder, ...]:
        """Return the holders of a GPU."""
        return self._held.get(gpu, ())

    def account(self, job: Hashable, node: str, gpu: str) -> GpuAccount:
        """Return what a job used of a GPU so far."""
        slot = self._slots.get((job, gpu))
        if slot is None:
            return GpuAccount(node=node, gpu=gpu)
        row, peak = self._rows.get(gpu, -1), float(self._peak[slot])
        counter = float(self._counter[row])
        return GpuAccount(
            node=node,
            gpu=gpu,
            **_rounded(self._sums[slot]),
            memory_peak=None if math.isnan(peak) else peak,
            limits={LIMIT_WORDS[number]: its for number, its in _above_zero(self._limits[slot])},
            use=dict(_above_zero(self._use[slot])),
            shared=bool(self._shared[slot]),
            at=0 if math.isnan(counter) or row < 0 else int(self._counted_at[row]),
            counter=0.0 if math.isnan(counter) or row < 0 else counter,
            first="" if slot in self._no_edges else self._first.get(slot, self._month),
            month=self._stored_month.get(slot, self._month),
            edges={month: _rounded(sums) for month, sums in self._edges.get(slot, {}).items()},
        )

    def restore(self, job: Hashable, account: GpuAccount) -> None:
        """Add what was stored of a job on a GPU; the counter goes on where it was read last."""
        slot = self._slot(job, account.gpu)
        stored = np.array([getattr(account, name) for name in SUMS])
        self._sums[slot] += stored
        self._restore_edges(slot, account, stored)
        if account.memory_peak is not None:
            self._peak[slot] = np.fmax(self._peak[slot], account.memory_peak)
        for number, word in enumerate(LIMIT_WORDS):
            self._limits[slot, number] += account.limits.get(word, 0.0)
        for number, seconds in account.use.items():
            if 0 <= number < BINS:
                self._use[slot, number] += seconds
        self._shared[slot] |= account.shared
        row = self._row(account.gpu)
        if account.at > self._counted_at[row]:
            self._counted_at[row], self._counter[row] = account.at, account.counter
            self._whole_from[row] = 0

    def _restore_edges(self, slot: int, account: GpuAccount, stored: Floats) -> None:
        """Add the sums at the edges of months; where a month has begun since, all that was stored."""
        for month, sums in account.edges.items():
            self._add_edge(slot, month, np.array([sums.get(name, 0.0) for name in SUMS]))
        if not account.first:
            if stored.any():
                self._no_edges.add(slot)
            return
        self._first[slot] = min(self._first.get(slot, account.first), account.first)
        if not self._month:
            self._stored_month[slot] = account.month
        elif account.month < self._month:
            self._add_edge(slot, self._month, stored)

    def _add_edge(self, slot: int, month: str, sums: Floats) -> None:
        found = self._edges.setdefault(slot, {})
        found[month] = found.get(month, 0.0) + sums

    def _begin_month(self, month: str) -> None:
        """Note the sums of all that was counted in an earlier month."""
        for slot in self._slots.values():
            if (self._stored_month.get(slot, month) if not self._month else self._month) < month:
                self._edges.setdefault(slot, {}).setdefault(month, self._sums[slot].copy())
            self._first.setdefault(slot, month)
        self._stored_month.clear()
        self._month = month

    def forget(self, job: Hashable, gpus: Iterable[str]) -> None:
        """Forget what a job used of some GPUs."""
        for gpu in gpus:
            slot = self._slots.pop((job, gpu), None)
            if slot is not None:
                self._free_slots.append(slot)
                self._edges.pop(slot, None)
                self._first.pop(slot, None)
                self._stored_month.pop(slot, None)
                self._no_edges.discard(slot)
                self.hold(gpu, self.holders(gpu))  # another one may have the slot from now on

    def rename(self, old: Hashable, new: Hashable, node: str, gpu: str) -> None:
        """Add what was counted of a job on a GPU to the same job under another name, which holds it from now on."""
        if (old, gpu) in self._slots:
            self.restore(new, self.account(old, node, gpu))
            self.forget(old, [gpu])

    def counted_whole(self, gpu: str, begin: int) -> bool:
        """Return whether all energy of a GPU since a time was counted, for jobs or for nobody."""
        row = self._rows.get(gpu)
        return row is not None and int(self._whole_from[row]) <= begin

    def move_unheld(self, month: str, name: str, value: float) -> None:
        """Add to a sum of GPUs that no job held in a month what a job turned out not to have used, or take it from
        there."""
        sums = self.unheld.get(UnheldKey(month, reported=True))
        if sums is not None:
            setattr(sums, name, max(0.0, getattr(sums, name) + value))

    def leave(self, gpus: Iterable[str]) -> None:
        """Note that GPUs are gone: what they used until they come back, another aggregator may have counted."""
        self._gone.update(gpus)

    def counted_until(self, gpu: str) -> int:
        """Return until when the readings of a GPU are counted, ns since 1970; 0 before any."""
        row = self._rows.get(gpu)
        return 0 if row is None else int(self._last_at[row])

    # -- Readings ----------------------------------------------------------------------------------

    def steps(
        self,
        fleet: Fleet,
        now: float,
        wall_ns: int,
        watts: Mapping[str, float],
        price: float | None,
        reported: Container[str] = (),
        month: CountedMonth = NO_MONTH,
    ) -> Iterator[None]:
        """Add the newest readings, and count those that are old enough; others may have a turn between
        two steps. `now`: the fleet's monotonic seconds; `watts`: at the wall by node; `price`: of a kWh
        there, None without a tariff; `reported`: the nodes that say who holds their GPUs; `month`: the present
        one of the site."""
        if fleet.version != self._version:
            self._place(fleet)
        count = fleet.size(Table.GPU)
        if count:
            sample = self._sample(fleet, count, now, wall_ns, watts, price)
            names = np.array([name in reported for name in fleet.nodes] + [False])
            sample.reported[self._of_fleet] = names[self._owner]
            sample.month = month
            self._waiting.append(sample)
        while self._waiting and now - self._waiting[0].taken >= self._lag:
            yield
            self._count(self._waiting.popleft())

    def _sample(
        self, fleet: Fleet, count: int, now: float, wall_ns: int, watts: Mapping[str, float], price: float | None
    ) -> _Sample:
        size, rows = len(self._last_at), self._of_fleet
        seen = fleet.matrices[GPU_FAST].seen[:count]
        heard = np.isfinite(seen)
        at = np.zeros(size, np.int64)
        at[rows] = np.where(heard, wall_ns - ((now - np.where(heard, seen, now)) * 1e9).astype(np.int64), 0)

        def column(name: str) -> npt.NDArray[Any]:
            values = fleet.column(name, now)
            found = np.full(size, np.nan, values.dtype)
            found[rows] = values
            return found

        read_at = np.zeros(size)
        read_at[rows] = np.maximum(0.0, fleet.matrices[GPU_SLOW].seen[:count])
        read_at[0] = 0.0  # of rows that are free
        drawn = np.array([watts.get(name, math.nan) for name in fleet.nodes] + [math.nan])
        wall = np.full(size, np.nan)
        own = column("gpu_power_watts")
        wall[rows] = wall_parts(drawn, own[rows], self._sizes, self._owner)
        return _Sample(
            at,
            column("gpu_utilization_ratio"),
            own,
            column("gpu_energy_joules_total"),
            column("gpu_memory_used_bytes"),
            np.stack([column(name) > 0.5 for name in LIMITS], axis=1),
            np.stack([column(name) for name in ACTIVITY], axis=1),
            column("gpu_sm_occupancy_ratio")[:, np.newaxis],
            self._traffic.update(np.stack([sum(map(column, names)) for names in COUNTERS], axis=1), read_at, now),
            wall,
            math.nan if price is None else price / 3.6e6,
            now,
            np.zeros(size, np.bool_),
            NO_MONTH,
        )

    def _place(self, fleet: Fleet) -> None:
        """Find the own row of each GPU row of the fleet."""
        self._version = fleet.version
        there = {entry[1].uuid for entry in fleet.gpus if entry is not None}
        for gpu in self._gone & there & self._rows.keys():
            self._clear(self._rows[gpu])
        self._gone -= there
        for gpu in [gpu for gpu in self._rows if gpu not in there and gpu not in self._held]:
            row = self._rows.pop(gpu)
            self._clear(row)
            self._free.append(row)
        found = [0 if entry is None else self._row(entry[1].uuid) for entry in fleet.gpus]
        self._of_fleet = np.array(found, np.intp)
        self._owner = np.full(len(found), len(fleet.nodes), np.intp)
        for position, node in enumerate(fleet.nodes.values()):
            self._owner[node.rows[Table.GPU]] = position
        sizes = [float(len(node.inventory.gpus)) or math.nan for node in fleet.nodes.values()]
        self._sizes = np.array([*sizes, math.nan])

    def _row(self, gpu: str) -> int:
        row = self._rows.get(gpu)
        if row is None:
            row = self._rows[gpu] = self._free.pop() if self._free else len(self._rows) + 1
            if row >= len(self._last_at):
                more = max(64, len(self._last_at) // 8)
                self._last_at = np.concatenate([self._last_at, np.zeros(more, np.int64)])
                self._counted_at = np.concatenate([self._counted_at, np.zeros(more, np.int64)])
                self._whole_from = np.concatenate([self._whole_from, np.full(more, FOREVER)])
                self._counter = np.concatenate([self._counter, np.full(more, np.nan)])
                self.joules = np.concatenate([self.joules, np.zeros(more)])
            self._dirty = True
        return row

    def _clear(self, row: int) -> None:
        self._last_at[row] = self._counted_at[row] = 0
        self._whole_from[row] = FOREVER
        self._counter[row], self.joules[row] = np.nan, 0.0
        self._traffic.clear(row)
        for sample in self._waiting:
            if row < len(sample.at):
                sample.at[row] = 0

    def _slot(self, job: Hashable, gpu: str) -> int:
        slot = self._slots.get((job, gpu))
        if slot is None:
            slot = self._free_slots.pop() if self._free_slots else len(self._slots)
            self._slots[job, gpu] = slot
            if self._month:
                self._first[slot] = self._month
            if slot >= len(self._sums):
                for name in ("_sums", "_peak", "_limits", "_use", "_shared"):
                    old = getattr(self, name)
                    setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
            self._sums[slot] = self._limits[slot] = self._use[slot] = 0.0
            self._peak[slot], self._shared[slot] = np.nan, False
        return slot

    def _flatten(self) -> None:
        """Bring the holders of all GPUs into columns."""
        self._flat = _flat(chain.from_iterable(self._columns.values()))
        self._dirty = False

    def _count(self, sample: _Sample) -> None:
        """Add a sample to the accounts of the holders."""
        if self._dirty:
            self._flatten()
        size = len(sample.at)
        last = self._last_at[:size]
        fresh = sample.at > last
        fresh[0] = False  # of rows that are free
        begin = np.where(fresh & (last > 0), last, sample.at)
        step = np.where(sample.at - begin <= LONGEST_HOLD * 1e9, begin, sample.at)
        joules, since = self._energy(sample, fresh, step)
        self.joules[:size] += np.nan_to_num(joules)
        self._last_at[:size] = np.where(fresh, sample.at, last)
        rows, starts, ends, slots, share = self._flat
        with np.errstate(invalid="ignore", divide="ignore"):
            density = joules / (sample.at - since)
        known = rows < size
        if not known.all():
            rows, slots, share = rows[known], slots[known], share[known]
            starts, ends = starts[known], ends[known]
        month, holders = sample.month, (rows, starts, ends, slots, share)
        if month.name > self._month:
            self._begin_month(month.name)
        if (fresh & (np.minimum(step, since) < month.start)).any():
            sums = self._sums.copy()
            reach = _Reach(step, np.minimum(sample.at, month.start), since)
            self._count_part(sample, fresh, density, reach, holders, month.before)
            grown = self._sums - sums
            for slot in np.flatnonzero(grown.any(axis=1)).tolist():
                self._add_edge(slot, month.name, grown[slot])
            step, since = np.maximum(step, month.start), np.maximum(since, month.start)
        self._count_part(sample, fresh, density, _Reach(step, sample.at, since), holders, month.name)

    def _count_part(
        self,
        sample: _Sample,
        fresh: npt.NDArray[np.bool_],
        density: Floats,
        reach: _Reach,
        holders: tuple[Index, Times, Times, Index, Floats],
        month: str,
    ) -> None:
        """Add the part of a sample that lies in one month. `density`: joules a ns."""
        rows, starts, ends, slots, share = holders
        step, until, since = reach

        def within(begin: Times) -> Floats:
            """Return the seconds for which each holder had its row."""
            shared = np.minimum(ends, until[rows]) - np.maximum(starts, begin[rows])
            return np.asarray(shared.clip(0) / 1e9, np.float64)

        held, energy = within(step), within(since)
        drawn = np.where(energy > 0, density[rows] * energy * 1e9, np.nan) * share
        self._add(sample, rows, slots, share, held, energy, drawn)

        def of_jobs(values: Floats) -> Floats:
            found = np.bincount(rows, np.nan_to_num(values), len(step))
            return found.astype(np.float64, copy=False)

        counted = (until - since).clip(0)
        self._add_unheld(
            sample,
            np.where(fresh, (until - step) / 1e9 - of_jobs(share * held), 0.0).clip(0),
            np.where(np.isfinite(density), counted / 1e9 - of_jobs(share * energy), 0.0).clip(0),
            (density * counted - of_jobs(drawn)).clip(0),
            month,
        )

    def _add_unheld(self, sample: _Sample, seconds: Floats, joule_seconds: Floats, joules: Floats, month: str) -> None:
        """Add the part of each row that no job had: seconds, those with an energy, and that."""
        busy = sample.busy.clip(0.0, 1.0).astype(np.float64)
        is_busy, is_wall = np.isfinite(busy), np.isfinite(sample.wall)
        idle = busy < IDLE_BELOW
        drawn = np.where(is_wall, sample.wall * seconds, 0.0)
        for reported in (True, False):
            rows = (sample.reported if reported else ~sample.reported) & ((seconds > 0) | (joule_seconds > 0))
            if not rows.any():
                continue
            sums = self.unheld.setdefault(UnheldKey(month, reported), UnheldUse())
            sums.seconds += float(seconds[rows].sum())
            sums.known += float(seconds[rows & is_busy].sum())
            sums.idle_known += float(seconds[rows & is_busy].sum())
            sums.idle_seconds += float(seconds[rows & idle].sum())
            sums.busy += float((busy * seconds)[rows & is_busy].sum())
            sums.joules += float(np.nan_to_num(joules[rows & (joule_seconds > 0)]).sum())
            sums.joule_seconds += float(joule_seconds[rows].sum())
            sums.wall += float(drawn[rows].sum())
            sums.wall_seconds += float(seconds[rows & is_wall].sum())
            if math.isfinite(sample.price):
                sums.cost += float(drawn[rows].sum()) * sample.price
                sums.cost_seconds += float(seconds[rows & is_wall].sum())
                sums.idle_cost += float(drawn[rows & idle].sum()) * sample.price

    def _energy(self, sample: _Sample, fresh: npt.NDArray[np.bool_], step: Times) -> tuple[Floats, Times]:
        """Return the joules of each row up to a sample, and since when: by the counter, over any gap;
        where there is none by its power, over a short one."""
        size = len(sample.at)
        before, at = self._counter[:size], self._counted_at[:size]
        usable = fresh & np.isfinite(sample.counter)
        grown = sample.counter - before
        seconds = (sample.at - at) / 1e9
        counted = usable & np.isfinite(before) & (grown >= 0) & (seconds > 0)
        counted &= grown <= MOST_WATTS * np.maximum(seconds, 1.0)
        by_power = fresh & ~counted & np.isfinite(sample.watts) & (step < sample.at)
        joules = np.where(counted, grown, np.where(by_power, sample.watts * (sample.at - step) / 1e9, np.nan))
        since = np.where(counted, at, step)
        whole = self._whole_from[:size]
        self._whole_from[:size] = np.where(usable & ~counted, sample.at, whole)
        self._counter[:size] = np.where(usable, sample.counter, np.where(by_power, np.nan, before))
        self._counted_at[:size] = np.where(usable | by_power, sample.at, at)
        return joules, since

    def _add(
        self, sample: _Sample, rows: Index, slots: Index, share: Floats, held: Floats, energy: Floats, drawn: Floats
    ) -> None:
        counts = len(self._sums)

        def sums(values: Floats) -> Floats:
            return np.bincount(slots, np.nan_to_num(values), counts).astype(np.float64, copy=False)

        busy, wall = sample.busy[rows].clip(0.0, 1.0).astype(np.float64), sample.wall[rows]
        is_busy, is_wall = np.isfinite(busy), np.isfinite(wall)
        priced = is_wall & math.isfinite(sample.price)
        at_wall, idle = wall * held * share, busy < IDLE_BELOW
        beside = at_wall - sample.watts[rows] * held * share
        for number, values in enumerate(
            (
                np.where(is_busy, held, 0.0),
                busy * held,
                drawn,
                np.where(np.isfinite(drawn), energy, 0.0),
                at_wall,
                np.where(is_wall, held, 0.0),
                at_wall * sample.price,
                np.where(priced, held, 0.0),
                *_with_seconds(sample.activity[rows], held),
                *_with_seconds(sample.occupancy[rows], held),
                *_amounts(sample.traffic[rows], held),
                np.where(is_busy, held, 0.0),
                np.where(idle, held, 0.0),
                np.where(idle, at_wall * sample.price, 0.0),
                held,
                share * held,
                beside,
                np.where(np.isfinite(beside), held, 0.0),
            )
        ):
            self._sums[:, number] += sums(values)
        now = held > 0
        peaks = now & np.isfinite(sample.memory[rows])
        np.fmax.at(self._peak, slots[peaks], sample.memory[rows][peaks])
        used = now & is_busy
        bins = np.minimum((busy[used] * BINS).astype(np.intp), BINS - 1)
        np.add.at(self._use, (slots[used], bins), held[used])
        limited = sample.limits[rows]
        for number in np.flatnonzero(limited[now].any(axis=0)).tolist():
            self._limits[:, number] += sums(np.where(limited[:, number], held, 0.0))
        self._shared[slots[now & (share < 1.0)]] = True


def _above_zero(seconds: Floats) -> list[tuple[int, float]]:
    """Return the numbers and values of what is not 0: most of forty bins are."""
    return [(number, round(seconds.item(number), 3)) for number in seconds.nonzero()[0].tolist()]


def _rounded(sums: Floats) -> dict[str, Any]:
    """Return sums by name, as fields of an account."""
    return dict(zip(SUMS, (np.rint(sums * _FINE) / _FINE).tolist(), strict=True))


def wall_parts(drawn: Floats, watts: Floats, sizes: Floats, owner: Index) -> Floats:
    """Return what each GPU draws at the wall: its own power, and an equal part of what else its node draws. Of a node
    that draws less than its GPUs say, its power as they have shares in it, and where one of them is not read, in equal
    parts. `drawn`: by node; `sizes`: number of its GPUs; `owner`: node of each GPU."""
    own = np.bincount(owner, watts, len(drawn))[owner]  # NaN where one of them is
    of_node, size = drawn[owner], sizes[owner]
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = np.where(own <= of_node, watts + (of_node - own) / size, watts * of_node / own)
    return np.where(np.isfinite(own), parts, of_node / size)


def _with_seconds(shares: Gauges, held: Floats) -> list[Floats]:
    """Return the seconds for which all of some shares (rows, shares) are known, and each share times them."""
    seconds = np.where(np.isfinite(shares).all(axis=1), held, 0.0)
    return [seconds, *(np.nan_to_num(shares).clip(0.0, 1.0) * seconds[:, np.newaxis]).T]


def _amounts(rates: Floats, held: Floats) -> Iterator[Floats]:
    """Yield for each of some rates (rows, rates) the seconds for which it is known, and it times them."""
    for rate in rates.T:
        seconds = np.where(np.isfinite(rate), held, 0.0)
        yield from (seconds, np.nan_to_num(rate) * seconds)


_HolderColumns = tuple[int, int, int, int, float]
"""Row, begin, end, slot and share."""
_FLAT = np.dtype([("row", np.intp), ("begin", np.int64), ("end", np.int64), ("slot", np.intp), ("share", np.float64)])


def _flat(entries: Iterable[_HolderColumns]) -> tuple[Index, Times, Times, Index, Floats]:
    found = np.fromiter(entries, _FLAT)
    row, begin, end, slot, share = (np.ascontiguousarray(found[name]) for name in _FLAT.names or ())
    return row, begin, end, slot, share
