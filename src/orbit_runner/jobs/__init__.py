"""What commands and the Python API do, with typed arguments and results.

Train, check before the start, launch a cluster, fine-tune. No flags, no printing.
"""
