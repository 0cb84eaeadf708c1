"""The plan of `runner replay`, and its execution."""
