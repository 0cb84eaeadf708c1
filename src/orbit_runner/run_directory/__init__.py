"""The files of a run beside its checkpoints: lock, config, data, history."""
