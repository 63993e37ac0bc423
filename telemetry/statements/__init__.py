"""Statements of the driver and its daemons in plain words: their catalogue, and the search for one."""
