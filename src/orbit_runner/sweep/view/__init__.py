"""Shows a sweep: a live table, a final table, a CSV file and an HTML page."""
