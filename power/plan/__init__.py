"""Plans: the evaluation of a live site over watts that someone supposes."""
