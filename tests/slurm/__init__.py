"""A Slurm that tests start themselves."""
