"""Web pages for people: read-only, from the types of the API."""
