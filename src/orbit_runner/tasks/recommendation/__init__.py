"""Items for users, from what each chose before."""
