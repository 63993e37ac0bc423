"""Alerts, incidents and deliveries on disk, in one SQLite file, before anything is sent."""
