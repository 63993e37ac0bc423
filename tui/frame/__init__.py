"""The frame around the views: what it knows, what it draws, and its keys; `tui.app` joins them."""
