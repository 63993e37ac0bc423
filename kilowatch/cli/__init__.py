"""Commands, a module per family; each parses arguments, calls a function and prints its result."""
