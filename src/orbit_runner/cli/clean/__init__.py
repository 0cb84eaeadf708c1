"""What `runner clean` deletes, and how."""
