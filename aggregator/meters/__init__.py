"""The shell around meters: MQTT subscriptions, Redfish and NUT, each bounded, none in another's way."""

from __future__ import annotations

from aggregator.meters.hub import MeterHub

__all__ = ["MeterHub"]
