"""From a bad reading to a page: rules with their examples, and the life of an alert."""
