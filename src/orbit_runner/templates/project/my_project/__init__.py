"""A task of Orbit Runner: predicts the species of a flower from four measurements."""
