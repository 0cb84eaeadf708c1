"""Supports tasks of other packages: their data sections, input pipelines and optimizers."""
