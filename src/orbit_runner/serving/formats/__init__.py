"""Files with a network in the formats of other programs: writing, and loading to check them."""
