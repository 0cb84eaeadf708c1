"""Image classification with one label per image."""
