"""The command `kilowatch`: reads flags and files, connects the parts, prints their results."""
