"""Public datasets: readers of their file formats.

The catalog and the downloads of `runner data`.
"""
