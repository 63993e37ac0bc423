"""Alerts and incidents in words: where they are, what their state is, what happened, and their evidence."""
