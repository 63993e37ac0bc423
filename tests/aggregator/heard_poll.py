"""A poll of a scheduler whose listings and accounts a test keeps."""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.impairments import Impairments
from aggregator.scheduler.listed import JobListing
from aggregator.scheduler.poll import SchedulerPoll
from api.jobs import JobAccount
from telemetry.wire.jobs import JobKey


class HeardPoll:
    """Listings and accounts that a poll hands on."""

    poll: SchedulerPoll

    def __init__(self) -> None:
        self.listings: list[JobListing] = []
        self.accounts: dict[JobKey, JobAccount] = {}
        self.ended: list[JobKey] = []
        self.impairments = Impairments()

    async def hear(self, listing: JobListing) -> Sequence[str]:
        """Keep a listing, in which all fits."""
        self.listings.append(listing)
        return ()

    async def ask(self) -> dict[str, tuple[str, str]]:
        """Ask once; return state and message of each source."""
        await self.poll.ask()
        return {each.name: (each.state, each.message) for each in self.poll.states()}
