"""HTTP from the collector: one request at a time, in a thread, within a limit of time."""
