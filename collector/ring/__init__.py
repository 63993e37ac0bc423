"""The newest frames of this node on disk, bounded, for an aggregator that missed them."""
