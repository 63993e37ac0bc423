"""Who uses the GPUs of this node: sources of jobs, their merge, and the retained message of it."""
