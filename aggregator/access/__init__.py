"""Who may come in, and what is shown to whom: tokens, guests, users of this machine, and fields of others' jobs."""
