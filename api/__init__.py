"""What the aggregator's HTTP API says, as far as the dashboard looks at it; a module for each kind
of document.

Tolerant: unknown fields are ignored, so that a dashboard and an aggregator of different releases
understand each other. The full form is in `/api/v1/openapi.json`.
"""
