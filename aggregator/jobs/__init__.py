"""Jobs of the cluster: from the lists of its nodes to intervals, use, energy and cost."""
