"""Web pages: what the server sends, and what a browser makes of it."""
