"""One step of training: its examples, its batch, its layers, and what happens in it."""
