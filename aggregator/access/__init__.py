"""Access to the server, and what is shown to whom: tokens, guests, users of this machine, fields of others' jobs."""
