"""What `runner init` writes: a project with a task of the user's own, or an experiment for data."""
