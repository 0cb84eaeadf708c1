"""Model Garden's own experiments: what is registered, its configs as ours, and ours as its."""
