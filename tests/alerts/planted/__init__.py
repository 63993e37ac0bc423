"""A healthy fleet with its ordinary noise, and the faults that are planted into it."""
