"""The live terminal dashboard, talking only to the aggregator's HTTP API."""
