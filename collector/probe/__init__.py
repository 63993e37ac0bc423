"""A driver in a process of its own, so that a call that hangs holds up nothing but itself."""
