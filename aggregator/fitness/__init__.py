"""Is the fleet good? A score of each node, of each job, and of all, with its reasons and its history."""
