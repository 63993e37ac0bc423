"""`kilowatch` whose desk is less patient, so that a life that takes minutes at night takes seconds.

    python -m tests.endtoend.hurried aggregate --config FILE

What is waited for is the same; only how long. Nothing else is changed.
"""

from __future__ import annotations

import sys

from msgspec.structs import replace

from aggregator.alerting import service
from aggregator.alerting.pipeline import timings_of
from alerts.config import AlertsConfig
from alerts.incidents.policy import NotificationTimings
from kilowatch.__main__ import main


def hurried(config: AlertsConfig) -> NotificationTimings:
    """Return a patience of seconds, which takes coming and going for nothing special."""
    return replace(
        timings_of(config), settle=0.5, settle_recurring=0.5, flap_start=10_000, storm_size=10_000
    )


if __name__ == "__main__":
    setattr(service, "timings_of", hurried)  # noqa: B010 - the type checker knows it as a function
    sys.exit(main())
