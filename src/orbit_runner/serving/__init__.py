"""Trained models: loaded from a checkpoint, exported."""
