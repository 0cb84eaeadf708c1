"""A task of Orbit Runner: tells the species of a flower from four measurements."""
