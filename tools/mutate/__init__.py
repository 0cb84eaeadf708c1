"""Changes the source in random places, one at a time, and runs the tests that cover each."""
