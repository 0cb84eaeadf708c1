"""Public data sets: where they are, what they should be, and how they get into a folder."""
