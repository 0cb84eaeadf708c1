"""Recommendation of items to users, based on their past choices."""
