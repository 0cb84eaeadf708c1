"""Self-contained HTML pages with charts as inline SVG."""
