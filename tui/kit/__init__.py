"""What the screens are made of: pure renderers under thin widgets."""
