"""Runs that are repeated up to a step, in another run directory.

`plan.py` plans and takes the steps; `reproduce`, `replay`, `branch` and `why` use it.
"""
