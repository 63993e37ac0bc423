"""From the journal to the channels: `routing`, `outbox`, a `worker` for each channel."""
