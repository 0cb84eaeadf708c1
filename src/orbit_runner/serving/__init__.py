"""Trained models: loading from a checkpoint, and export."""
