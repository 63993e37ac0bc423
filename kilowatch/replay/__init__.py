"""Recordings played offline: `player`, for the dashboard (`cluster`, `server`) and for rules (`outcome`)."""
