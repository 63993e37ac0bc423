"""The dashboard state, documents of the API, and views of both. Pure."""
