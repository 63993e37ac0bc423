"""The push of readings and events in OpenTelemetry's protocol (docs/otlp.md)."""
