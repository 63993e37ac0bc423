"""The parts of the frame around views, which `tui.app` joins."""
