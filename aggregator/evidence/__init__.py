"""Evidence of incidents: collected from the fleet, the store and the journal when they are notified."""
