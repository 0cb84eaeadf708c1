"""What commands and the Python API do, with typed arguments and results.

Train, check before the start, repeat a run or a step, branch, launch a cluster. No flags, no
printing.
"""
