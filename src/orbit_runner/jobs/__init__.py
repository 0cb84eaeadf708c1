"""What the commands and the Python API do: typed arguments, results and errors; no flags."""
