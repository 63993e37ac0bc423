"""Power snapshots: every computed quantity of circuits, budgets, UPSs and supplies at one instant."""
