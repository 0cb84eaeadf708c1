"""Runs that are repeated up to a step, in another run directory.

`plan.py` plans the steps. `rerun.py` starts a run that takes them, for `reproduce`, `replay` and
`branch`; a search (`why`, `replay --find`) takes them in pieces, by `train_in_loops` of `train/`.
"""
