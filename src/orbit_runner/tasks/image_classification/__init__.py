"""One label an image."""
