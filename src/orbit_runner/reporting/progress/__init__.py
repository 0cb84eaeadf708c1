"""Progress on standard error: a live display, plain lines or JSON."""
