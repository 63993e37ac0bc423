"""Jobs: the table of those that run, and the page of one."""

from __future__ import annotations

from typing import Any, ClassVar

from api.jobs import JobReply, JobsReply
from tui.feed.wants import DocumentRequest, Wants
from tui.kit.surface import Drawing
from tui.kit.theme import Line
from tui.screens.job_text import Place, by_uuid, job_lines
from tui.screens.lists import ListView
from tui.screens.page import PageView
from tui.state.dashboard_state import DashboardState
from tui.state.documents import JOBS, LOADING
from tui.state.gpus import gpu_name
from tui.tables.fields import JOB_KEYS
from tui.tables.filter import Filter
from tui.tables.job_table import JOB_SORTS, job_listing, job_name, page_of
from tui.tables.listing import Listing

JOBS_REQUEST = DocumentRequest(JOBS, JobsReply, 5.0)
"""Request for the jobs that run: an aggregator samples them every five seconds."""


def job_page_lines(state: DashboardState, path: str, width: int) -> list[Line]:
    """Draw the page of a job, or why it is not there."""
    found = state.doc(path, JobReply)
    if found is None:
        return [[(state.fault(path) or state.fault(JOBS) or LOADING, "dim")]]
    return job_lines(found, width, places(state))


def places(state: DashboardState) -> Place:
    """Return what names GPUs by their node and number, as far as they are known."""

    def place(node: str, uuid: str) -> str:
        row = state.gpus.row_of.get(uuid)
        if row is None:
            return by_uuid(node, uuid)
        return gpu_name(uuid, state.gpus)

    return place


class JobsView(ListView):
    """View 8: the jobs that run."""

    NAME, TITLE, KIND = "jobs", "Jobs", "job"
    FILTERED_BY = JOB_KEYS
    SORTS = tuple(JOB_SORTS)

    def wants(self) -> Wants:
        """Return all jobs, and the page of the one beside the table."""
        page = (DocumentRequest(self.beside, JobReply, 5.0),) if self.beside else ()
        return Wants(nodes=(), documents=(JOBS_REQUEST, *page, *self.also()))

    def listing(self, wanted: Filter) -> Listing[Any]:
        """Return the jobs that fit."""
        state = self.context.shown
        return job_listing(
            state.jobs,
            state.at,
            self.sort,
            wanted,
            reverse=self.reverse,
            faults=self.context.faults,
            nothing=state.jobs_unknown or "no job holds a GPU, as far as nodes say",
        )

    def detail(self, key: str) -> Drawing:
        """Return the job's page."""
        state = self.context.shown
        return lambda width, _: job_page_lines(state, key, width)

    def do_copy(self) -> None:
        """Copy the id of the job."""
        row = next((row for row in self.context.shown.jobs if page_of(row) == self.rows.key), None)
        if row is not None:
            self.context.frame.copy(row.id)


class JobView(PageView):
    """The page of a job; its subject is the path of its document."""

    NAME: ClassVar[str] = "job"
    TITLE: ClassVar[str] = "Job"

    def wants(self) -> Wants:
        """Return the job, and all jobs for the ones before and behind it."""
        page = (DocumentRequest(self.subject, JobReply, 2.0),) if self.subject else ()
        return Wants(nodes=(), documents=(JOBS_REQUEST, *page))

    def lines(self, width: int, height: int) -> list[Line]:
        """Draw the page."""
        return job_page_lines(self.context.shown, self.subject, width)

    def title(self) -> str:
        """Return the job's id and name."""
        found = self.record()
        return self.TITLE if found is None else job_name(found.job)

    def neighbours(self) -> list[str]:
        """Return all jobs that run."""
        return [page_of(row) for row in self.context.shown.jobs]

    def do_copy(self) -> None:
        """Copy the id of the job."""
        found = self.record()
        if found is not None:
            self.context.frame.copy(found.job.id)

    def record(self) -> Any:
        """Return the job with all that is known of it."""
        return self.context.shown.doc(self.subject, JobReply)
