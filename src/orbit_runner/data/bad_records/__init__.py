"""Records that cannot be read or decoded: found before training, and left out up to a limit."""
