"""The cluster as it was, from the aggregator's store: frames, and the documents that belong to them."""
