"""`runner replay`: from which checkpoint it starts, and what it does."""
