"""The desk: who is told of what. Pure: no clock, no I/O."""
