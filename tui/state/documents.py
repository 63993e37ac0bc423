"""The newest documents of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from api.alerts import Incident, IncidentsReply, Silence, SilencesReply
from api.errors import ErrorDetail
from api.jobs import JobRow, JobsReply
from api.power import CircuitReply, CircuitsReply, CircuitState, PowerReply, RowsReply, RowState
from api.report import Report
from present.circuit.set_aside import set_aside_lines
from tui.state.circuit_columns import page_of

T = TypeVar("T")

CIRCUITS = "api/v1/circuits"
CHAIN = "api/v1/power/chain"
INCIDENTS = "api/v1/incidents"
SILENCES = "api/v1/silences"
POWER_PAGE = "api/v1/power"
BUDGETS = "api/v1/budgets"
TODAY = "api/v1/report?days=1"
JOBS = "api/v1/jobs?state=running&limit=1000"
LOADING = "loading …"
"""Text for what was requested and has not come."""
PAGE_WITHIN = 5_000_000_000
"""ns that the page of a circuit may be older than the list of all."""


@dataclass(frozen=True, slots=True)
class Doc:
    """The newest answer to a document request."""

    value: object
    """The decoded document, or an `ErrorDetail`."""
    came: float
    """Monotonic seconds of this machine."""


@dataclass(frozen=True)
class Documents:
    """The newest documents, and their parts."""

    docs: Mapping[str, Doc] = field(default_factory=dict)
    """Documents by path, with their query."""

    def doc(self, path: str, kind: type[T]) -> T | None:
        """Return a document, None before it came or while it is refused."""
        found = self.docs.get(path)
        return found.value if found is not None and isinstance(found.value, kind) else None

    def fault(self, path: str) -> str:
        """Return why a document is refused, or ``."""
        found = self.docs.get(path)
        return str(found.value) if found is not None and isinstance(found.value, ErrorDetail) else ""

    def came(self, path: str) -> float:
        """Return when a document came, monotonic seconds; 0 before."""
        found = self.docs.get(path)
        return 0.0 if found is None else found.came

    @cached_property
    def circuits(self) -> tuple[CircuitState, ...]:
        """Every circuit and panel, parents before what they feed."""
        found = self.doc(CIRCUITS, CircuitsReply)
        return () if found is None else tuple(found.circuits)

    @property
    def circuits_unknown(self) -> str:
        """The reason why circuits are not known, or ``."""
        found = self.doc(CIRCUITS, CircuitsReply)
        if found is not None:
            return f"no circuit is monitored: {found.failure}" if found.failure else ""
        return self.fault(CIRCUITS) or LOADING

    @property
    def circuits_set_aside(self) -> list[str]:
        """Parts of the circuits that alone can't be computed, in words."""
        found = self.doc(CIRCUITS, CircuitsReply)
        return [] if found is None else set_aside_lines(found.set_aside)

    def circuit(self, name: str) -> CircuitState | None:
        """Return a circuit, with all fields while its page is open, else in short."""
        page = self.doc(page_of(name), CircuitReply)
        if page is not None and page.at >= self.circuits_at - PAGE_WITHIN:
            return page.circuit
        return next((each for each in self.circuits if each.id == name), None)

    @property
    def circuits_at(self) -> int:
        """The time at which circuits were computed, ns since 1970; 0 while they are not known."""
        found = self.doc(CIRCUITS, CircuitsReply)
        return 0 if found is None else found.at

    @cached_property
    def feeds(self) -> dict[str, list[str]]:
        """Circuits by node that they feed directly."""
        found: dict[str, list[str]] = {}
        for circuit in self.circuits:
            for node in circuit.nodes:
                found.setdefault(node, []).append(circuit.id)
        return found

    @cached_property
    def incidents(self) -> tuple[Incident, ...]:
        """Open incidents, worst first."""
        found = self.doc(INCIDENTS, IncidentsReply)
        return () if found is None else tuple(found.incidents)

    @property
    def incidents_unknown(self) -> str:
        """The reason why incidents are not known, or ``."""
        if self.doc(INCIDENTS, IncidentsReply) is not None:
            return ""
        return self.fault(INCIDENTS) or LOADING

    @property
    def jobs(self) -> tuple[JobRow, ...]:
        """Jobs that run, the newest begin first."""
        found = self.doc(JOBS, JobsReply)
        return () if found is None else tuple(found.jobs)

    @property
    def jobs_unknown(self) -> str:
        """The reason why jobs are not known, or ``."""
        if self.doc(JOBS, JobsReply) is not None:
            return ""
        return self.fault(JOBS) or LOADING

    @property
    def silences(self) -> tuple[Silence, ...]:
        """Silences in force, to come, and just ended."""
        found = self.doc(SILENCES, SilencesReply)
        return () if found is None else tuple(found.silences)

    @property
    def budgets(self) -> tuple[RowState, ...]:
        """Every budget."""
        found = self.doc(BUDGETS, RowsReply)
        return () if found is None else tuple(found.rows)

    @cached_property
    def fullest_budget(self) -> Mapping[str, float | None]:
        """The quantities of the budget with the highest share in use; empty without one."""
        found = [row.quantities for row in self.budgets if row.quantities.get("power_ratio")]
        return max(found, key=lambda row: row.get("power_ratio") or 0.0, default={})

    @property
    def budget_power(self) -> tuple[float | None, float | None, float | None]:
        """Watts, limit and share of the fullest budget; None without one."""
        ratio, used = self.fullest_budget.get("power_ratio"), self.fullest_budget.get("watts")
        return used, used / ratio if used is not None and ratio else None, ratio

    @property
    def power(self) -> PowerReply | None:
        """The electrical side as a whole."""
        return self.doc(POWER_PAGE, PowerReply)

    @property
    def today(self) -> Report | None:
        """Energy and cost of this day."""
        return self.doc(TODAY, Report)
