"""What the loop needs to know of tasks that are not of this package."""
