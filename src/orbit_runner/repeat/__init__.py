"""Runs that are repeated up to a step, in another run directory.

`plan.py` plans the steps, and `rerun.py` takes them; `reproduce`, `replay`, `branch` and `why` use
both.
"""
