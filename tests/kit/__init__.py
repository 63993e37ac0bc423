"""Tools that all tests share."""
