"""Driver calls in a process of their own, so that a call that hangs blocks nothing else."""
