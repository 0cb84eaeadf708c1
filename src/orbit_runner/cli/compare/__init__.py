"""What `runner compare` does besides comparing single runs."""
