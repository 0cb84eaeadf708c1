"""What changes with a step, and under which names a checkpoint holds it."""
