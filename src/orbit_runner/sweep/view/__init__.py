"""What is shown of a sweep: a live table, a table at the end, a CSV file and an HTML page."""
