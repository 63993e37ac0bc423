"""The types of the aggregator's HTTP API: each answer, request and message of the stream once.

The server encodes them, the dashboard and the commands decode the same. A client is tolerant, so that
programs of different releases understand each other: unknown fields are ignored, fields that came
later have a default, and `api.decoding` accepts words that an enumeration does not know yet. The same in
words is at `/api/v1/openapi.json`; the sentence under a field here is its description there.

Only `telemetry` and msgspec may be imported here: the dashboard's start is measured.
"""
