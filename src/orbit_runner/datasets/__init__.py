"""Public datasets: readers of their file formats, and the catalogue of `runner data`."""
