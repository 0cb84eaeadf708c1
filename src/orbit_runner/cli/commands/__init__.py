"""One module per command of `runner`."""
