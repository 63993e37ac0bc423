"""Reader of saved logs of nodes, of any format: what they show of the health of GPUs, and what not."""
