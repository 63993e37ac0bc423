"""`kilowatch check`: whether this node is fit for work, before a scheduler places any on it."""
