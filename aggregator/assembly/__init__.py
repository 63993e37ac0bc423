"""Assembly of folders that do not know each other: the server of API and pages, and the choice of a store."""
