"""Public datasets: readers of their file formats, and the catalog of `runner data`."""
