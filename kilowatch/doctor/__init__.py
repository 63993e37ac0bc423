"""`kilowatch doctor`: checks of this machine's set-up, each with its remedy."""
