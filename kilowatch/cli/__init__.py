"""One module per family of commands; each parses, calls and prints, and decides nothing."""
