"""What a run needs to know of tasks that are not of this package."""
