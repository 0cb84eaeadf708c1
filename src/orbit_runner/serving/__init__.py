"""Trained models: loading from a checkpoint, and exports."""
