"""Ratings: interactions, their split, and the batches of examples that are made from them."""
