"""Datasets that Hugging Face's `datasets` saved on disk, and other Arrow files."""
