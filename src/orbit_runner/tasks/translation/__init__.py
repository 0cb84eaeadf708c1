"""Translation of sentences from one language to another."""
