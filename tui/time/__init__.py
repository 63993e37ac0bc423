"""Which instant the screen shows: live, paused, or from the recent frames."""
