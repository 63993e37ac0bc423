"""`kilowatch` with short notification timings, so that incidents end within seconds.

    python -m tests.endtoend.hurried aggregate --config FILE

Nothing but the timings is changed.
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
    """Return timings of seconds, without flap detection and storms."""
    return replace(timings_of(config), settle=0.5, settle_recurring=0.5, flap_start=10_000, storm_size=10_000)


if __name__ == "__main__":
    setattr(service, "timings_of", hurried)  # noqa: B010 - the type checker knows it as a function
    sys.exit(main())
