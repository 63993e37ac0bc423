"""From what was saved of a node (kernel log, nvidia-smi) to incidents, one per cause. Pure."""
